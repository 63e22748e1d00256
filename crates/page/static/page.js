// Live parts: a stream says when something has changed, and the parts are fetched anew by the
// ordinary way. Without this script every page works; it is only older.
"use strict";
(() => {
  const lost = document.getElementById("lost");
  const parts = () => document.querySelectorAll("[data-live]");
  const POLL = 5000, AGAIN = 3000, POLLS_BEFORE_STREAM = 12;
  let stream = null, timer = 0, polls = 0, looking = false, lookAgain = false;

  // Details that a person has opened stay open, and where the cursor is nothing moves.
  const keep = (before, after) => {
    const open = [...before.querySelectorAll("details")].map((it) => it.open);
    after.querySelectorAll("details").forEach((it, at) => { it.open = Boolean(open[at]); });
    const scrolled = [...before.querySelectorAll(".scroll")].map((it) => it.scrollLeft);
    return () => after.querySelectorAll(".scroll").forEach((it, at) => {
      it.scrollLeft = scrolled[at] || 0;
    });
  };

  const busy = (part) => {
    const at = document.activeElement;
    const chosen = String(window.getSelection() || "");
    return (at && at !== document.body && part.contains(at)) ||
      (chosen && part.contains(window.getSelection().anchorNode));
  };

  const replace = (page) => {
    for (const part of parts()) {
      const name = part.dataset.live;
      const after = page.querySelector(`[data-live="${name}"]`);
      if (!after || busy(part) || after.innerHTML === part.innerHTML) continue;
      const scroll = keep(part, after);
      part.replaceWith(document.adoptNode(after));
      scroll();
    }
  };

  // True when the daemon has answered.
  const look = async () => {
    if (looking) { lookAgain = true; return true; }
    looking = true;
    let answered = false;
    try {
      const answer = await fetch(location.href, { cache: "no-store", redirect: "manual" });
      if (answer.type === "opaqueredirect") { location.reload(); return true; }
      if (answer.ok) {
        const text = await answer.text();
        replace(new DOMParser().parseFromString(text, "text/html"));
        answered = true;
      }
    } catch { /* it is said below */ }
    lost.hidden = answered;
    looking = false;
    if (lookAgain) { lookAgain = false; return look(); }
    return answered;
  };

  const close = () => {
    clearTimeout(timer);
    if (stream) { stream.close(); stream = null; }
  };

  // Without a stream: looks from time to time, and tries for a stream again after a while.
  const poll = async (wait) => {
    close();
    timer = setTimeout(async () => {
      const answered = await look();
      polls += 1;
      if (answered && (wait === AGAIN || polls >= POLLS_BEFORE_STREAM)) listen();
      else poll(wait);
    }, wait);
  };

  const listen = () => {
    close();
    if (document.hidden) return;
    polls = 0;
    let heard = false;
    stream = new EventSource("/live");
    stream.addEventListener("hello", () => { heard = true; });
    stream.addEventListener("changed", look);
    stream.onerror = () => {
      // A stream that was refused at once will be refused again for a while.
      const full = !heard && stream && stream.readyState === EventSource.CLOSED;
      poll(full ? POLL : AGAIN);
    };
  };

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { close(); return; }
    look();
    listen();
  });
  window.addEventListener("pagehide", close);

  if (lost && parts().length > 0) listen();

  // A file of leads is put where it can be read over before it is sent.
  const file = document.querySelector("[data-file]");
  if (file) {
    file.hidden = false;
    file.addEventListener("change", async (event) => {
      const chosen = event.target.files[0];
      if (chosen) document.getElementById("csv").value = await chosen.text();
    });
  }

  // One tick for all letters of the page.
  const all = document.querySelector("[data-all]");
  if (all) {
    const each = () => [...document.querySelectorAll("input[name=id]")];
    all.hidden = false;
    all.addEventListener("change", () => each().forEach((it) => { it.checked = all.checked; }));
    document.addEventListener("change", (event) => {
      if (event.target.name === "id") all.checked = each().every((it) => it.checked);
    });
  }
})();
