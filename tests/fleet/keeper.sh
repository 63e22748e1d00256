# Three RabbitMQ nodes, each in a network namespace of its own, on a bridge; small disks for who may
# find them full. Reads a command a line, and answers each with a line: `done`, or what it was asked.
# Everything is ended and removed when the pipe closes, however the test's process ends.
bridge=cb$NET
address() { echo "10.213.$NET.$1"; }
at() { echo "$FOLDER/node-$1"; }
group() { cat "$(at "$1")/group" 2>/dev/null; }
mounted=

set_up() {
    ip link add "$bridge" type bridge &&
        ip addr add "$(address 254)/24" dev "$bridge" && ip link set "$bridge" up || return 1
    for n in 1 2 3; do
        ip netns add "$bridge-$n" &&
            ip link add "$bridge-v$n" type veth peer name eth0 netns "$bridge-$n" &&
            ip link set "$bridge-v$n" master "$bridge" up &&
            ip -n "$bridge-$n" addr add "$(address $n)/24" dev eth0 &&
            ip -n "$bridge-$n" link set eth0 up && ip -n "$bridge-$n" link set lo up || return 1
        ip netns exec "$bridge-$n" epmd -address "$(address $n)" >/dev/null 2>&1 </dev/null &
        echo $! >"$(at $n)/epmd"
        disk "$(at $n)/data" 400m || return 1
    done
}

# disk PATH SIZE: a small disk of its own.
disk() { mkdir -p "$1" && mount -t tmpfs -o "size=$2" tmpfs "$1" && mounted="$1 $mounted"; }

start() {
    local node; node=$(at "$1")
    env -i PATH="$PATH" HOME="$node" RABBITMQ_NODENAME="callbridge@$(address "$1")" \
        RABBITMQ_USE_LONGNAME=true RABBITMQ_CONFIG_FILE="$node/rabbitmq.conf" \
        RABBITMQ_CONF_ENV_FILE="$node/env.conf" RABBITMQ_ENABLED_PLUGINS_FILE="$node/plugins" \
        RABBITMQ_MNESIA_BASE="$node/data" RABBITMQ_LOG_BASE="$node/log" \
        RABBITMQ_PID_FILE="$node/pid" \
        setsid ip netns exec "$bridge-$1" "$PROGRAMS/rabbitmq-server" >>"$node/node.log" 2>&1 </dev/null &
    echo $! >"$node/group"
}

# signal WORD NODE
signal() {
    local group; group=$(group "$2")
    [ -z "$group" ] || kill -s "$1" -- "-$group"
    if [ "$1" = KILL ] && [ -n "$group" ]; then wait "$group"; rm -f "$(at "$2")/group"; fi
}

# Neither hears the other any more; what is on the way vanishes without a word.
cut() {
    ip -n "$bridge-$1" route add blackhole "$(address "$2")/32"
    ip -n "$bridge-$2" route add blackhole "$(address "$1")/32"
}

heal() {
    for n in 1 2 3; do
        for other in 1 2 3; do
            ip -n "$bridge-$n" route del blackhole "$(address $other)/32" 2>/dev/null
        done
    done
    return 0
}

# fill PATH: not a byte more fits on this disk. empty PATH: the room is there again.
fill() { dd if=/dev/zero of="$1/filled" bs=64k >/dev/null 2>&1; return 0; }
empty() { rm -f "$1/filled"; }

while read -r word rest; do
    # shellcheck disable=SC2086
    if $word $rest >>"$FOLDER/keeper.log" 2>&1; then echo done; else echo "failed"; fi
done

for n in 1 2 3; do
    signal CONT $n
    signal KILL $n
    kill "$(cat "$(at $n)/epmd")"
    ip netns del "$bridge-$n"
done 2>/dev/null
ip link del "$bridge" 2>/dev/null
for path in $mounted; do umount -l "$path"; done 2>/dev/null
rm -rf "$FOLDER"
