use super::*;

fn settings(behind_proxy: bool) -> Settings {
    let names = ["calls.example.uz".to_owned()];
    let address = "127.0.0.1:9000".parse().expect("an address");
    let proxies: Option<&[IpAddr]> = behind_proxy.then_some(&[]);
    Settings::new(address, None, proxies, &names).expect("settings")
}

fn post_with_headers(headers: &[(&'static str, &str)]) -> Asked {
    let pairs = headers.iter().map(|(name, value)| {
        let name = header::HeaderName::from_static(name);
        (name, value.parse().expect("a value"))
    });
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        map.append(name, value);
    }
    Asked {
        method: Method::POST,
        uri: "/x".parse().expect("a path"),
        headers: map,
        query: FormFields::default(),
        form: FormFields::default(),
        from: PeerGroup::V4(std::net::Ipv4Addr::LOCALHOST),
    }
}

/// Checks the origin of a POST to `localhost:9000` with these headers.
fn check_without_proxy(headers: &[(&'static str, &str)]) -> Result<(), &'static str> {
    let mut all = vec![("host", "localhost:9000")];
    all.extend_from_slice(headers);
    check_origin(&post_with_headers(&all), &settings(false))
}

#[test]
fn post_without_proof_of_the_same_origin_is_refused() {
    let (origin, site) = ("origin", "sec-fetch-site");
    assert_eq!(
        check_without_proxy(&[(origin, "http://localhost:9000")]),
        Ok(())
    );
    assert_eq!(check_without_proxy(&[(site, "same-origin")]), Ok(()));
    assert_eq!(
        check_without_proxy(&[(origin, "null"), (site, "same-origin")]),
        Ok(())
    );
    assert_eq!(check_without_proxy(&[]), Err("problem.no_origin.words"));
    for foreign in [
        "http://evil.example",
        "http://localhost:9001",
        "http://localhost",
        "https://localhost:9000",
        "http://127.0.0.1:9000",
        "null",
        "",
        "localhost:9000",
    ] {
        assert_eq!(
            check_without_proxy(&[(origin, foreign)]),
            Err("problem.origin.words"),
            "{foreign}"
        );
        let with_site = check_without_proxy(&[(origin, foreign), (site, "cross-site")]);
        assert_eq!(with_site, Err("problem.origin.words"), "{foreign}");
    }
    for foreign in ["cross-site", "same-site", "none", "", "Same-Origin"] {
        let own = (origin, "http://localhost:9000");
        assert_eq!(
            check_without_proxy(&[own, (site, foreign)]),
            Err("problem.origin.words"),
            "{foreign}"
        );
        assert_eq!(
            check_without_proxy(&[(site, foreign)]),
            Err("problem.origin.words"),
            "{foreign}"
        );
    }
}

fn check_behind_proxy(headers: &[(&'static str, &str)]) -> Result<(), &'static str> {
    check_origin(&post_with_headers(headers), &settings(true))
}

#[test]
fn origin_check_behind_proxy_allows_only_port_mismatch() {
    let host = ("host", "calls.example.uz");
    let same = ("sec-fetch-site", "same-origin");
    assert_eq!(
        check_behind_proxy(&[host, ("origin", "https://calls.example.uz")]),
        Ok(())
    );
    let with_port = ("origin", "https://calls.example.uz:8443");
    assert_eq!(check_behind_proxy(&[host, with_port, same]), Ok(()));
    assert_eq!(
        check_behind_proxy(&[host, with_port]),
        Err("problem.origin.words")
    );
    let other = ("origin", "https://evil.example");
    assert_eq!(
        check_behind_proxy(&[host, other, same]),
        Err("problem.origin.words")
    );
}

/// Returns `true` if a request with these `Host` headers is for the page.
fn has_own_host(hosts: &[&str]) -> bool {
    let all: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
    is_own_host(&post_with_headers(&all), &settings(false))
}

#[test]
fn host_is_compared_without_port_and_must_appear_once() {
    for own in [
        "localhost",
        "localhost:1",
        "[::1]:9000",
        "calls.example.uz:443",
        "127.0.0.1:8",
    ] {
        assert!(has_own_host(&[own]), "{own}");
    }
    for foreign in [
        "evil.example",
        "localhost.evil.example:9000",
        "",
        ":9000",
        "192.0.2.1",
    ] {
        assert!(!has_own_host(&[foreign]), "{foreign}");
    }
    assert!(!has_own_host(&[]));
    assert!(!has_own_host(&["localhost", "evil.example"]));
    let mut absolute = post_with_headers(&[("host", "localhost")]);
    absolute.uri = "http://evil.example/x".parse().expect("a target");
    assert!(!is_own_host(&absolute, &settings(false)));
}

/// Returns the client's address for a request with these `X-Forwarded-For` headers.
fn client_address(lines: &[&str]) -> Option<String> {
    let all: Vec<_> = lines
        .iter()
        .map(|line| ("x-forwarded-for", *line))
        .collect();
    Asked::forwarded_address(&post_with_headers(&all).headers).map(|ip| ip.to_string())
}

#[test]
fn last_forwarded_address_of_a_proxy_is_the_client() {
    assert_eq!(
        client_address(&["192.0.2.1, 192.0.2.2"]).as_deref(),
        Some("192.0.2.2")
    );
    assert_eq!(
        client_address(&["192.0.2.1", "192.0.2.3"]).as_deref(),
        Some("192.0.2.3")
    );
    assert_eq!(
        client_address(&["192.0.2.1:50000"]).as_deref(),
        Some("192.0.2.1")
    );
    assert_eq!(
        client_address(&["[2001:db8::1]"]).as_deref(),
        Some("2001:db8::1")
    );
    assert_eq!(client_address(&["192.0.2.1, unknown"]), None);
    assert_eq!(client_address(&[]), None);
}

#[test]
fn redirect_goes_only_to_a_path_of_this_page() {
    for own in ["/", "/letters?reason=failed&before=7"] {
        assert_eq!(local_path(own), own);
    }
    for other in [
        "//evil.example",
        "https://evil.example",
        "",
        "/\\evil.example",
        "/a b",
        "/\n",
    ] {
        assert_eq!(local_path(other), "/", "{other}");
    }
}

#[test]
fn cookies_are_distinguished_by_their_whole_name() {
    let all = post_with_headers(&[("cookie", "a-b=1; a=2; a=3"), ("cookie", "a=4")]);
    assert_eq!(all.cookies("a").collect::<Vec<_>>(), ["2", "3", "4"]);
}

#[test]
fn form_fields_survive_a_round_trip_and_are_limited() {
    let fields = FormFields::read(b"id=1&id=x&id=2&lead=+4001+&empty=&name=%D0%90%26b");
    assert_eq!(fields.letters("id"), [RowId(1), RowId(2)]);
    assert_eq!(fields.get("lead"), Some("4001"));
    assert_eq!(fields.get("empty"), None);
    assert_eq!(fields.typed_value("lead"), " 4001 ");
    assert_eq!(FormFields::read(fields.encode().as_bytes()), fields);
    assert_eq!(FormFields::read(&b"a=1&".repeat(1000)).0.len(), FIELDS_MAX);
    let made = link("/calls", &[("text", Some("+998 & co")), ("day", None)]);
    assert_eq!(made, "/calls?text=%2B998+%26+co");
}
