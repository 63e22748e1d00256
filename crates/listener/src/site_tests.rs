use super::*;

fn request(headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::get("/metrics");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).expect("a request")
}

fn refusal(rules: &SiteRules, headers: &[(&str, &str)]) -> Option<SiteRefusal> {
    rules.refusal(&request(headers), true)
}

#[test]
fn loopback_listener_accepts_only_ip_and_localhost_hosts() {
    for host in [
        "127.0.0.1",
        "127.0.0.1:9469",
        "127.0.0.1.:9469",
        "192.0.2.7:9469",
        "[::1]",
        "[::1]:9469",
        "[2001:db8::1]",
        "localhost",
        "LocalHost:9469",
        "localhost.:9469",
        "localhost:",
    ] {
        assert_eq!(
            refusal(&SiteRules::STRICT, &[("host", host)]),
            None,
            "{host}"
        );
    }
    for host in [
        "evil.example",
        "evil.example:9469",
        "localhost.evil.example",
        "evil-localhost",
        "127.0.0.1.evil.example",
        "2130706433",
        "0x7f.1",
        "user@127.0.0.1",
        "127.0.0.1@evil.example",
        "127.0.0.1:9469:80",
        "127.0.0.1:port",
        "::1",
        "[::1",
        "[::1]evil.example",
        "[127.0.0.1]",
        "localhost..",
        "",
    ] {
        let refused = refusal(&SiteRules::STRICT, &[("host", host)]);
        assert_eq!(refused, Some(SiteRefusal::Host), "{host}");
    }
}

#[test]
fn repeated_or_missing_host_is_refused_except_in_http_1_0() {
    let twice = [("host", "127.0.0.1"), ("host", "evil.example")];
    assert_eq!(refusal(&SiteRules::STRICT, &twice), Some(SiteRefusal::Host));
    let mut request = request(&[]);
    let rules = SiteRules::STRICT;
    assert_eq!(rules.refusal(&request, true), Some(SiteRefusal::Host));
    *request.version_mut() = Version::HTTP_10;
    assert_eq!(rules.refusal(&request, true), None);
}

#[test]
fn host_in_the_request_target_is_checked_too() {
    let absolute = Request::get("http://evil.example/metrics")
        .header("host", "127.0.0.1")
        .body(())
        .expect("a request");
    let refused = SiteRules::STRICT.refusal(&absolute, true);
    assert_eq!(refused, Some(SiteRefusal::Host));
    let own = Request::get("http://127.0.0.1:9469/metrics")
        .header("host", "127.0.0.1:9469")
        .body(())
        .expect("a request");
    assert_eq!(SiteRules::STRICT.refusal(&own, true), None);
}

#[test]
fn any_host_is_accepted_off_loopback_or_by_rule() {
    let named = request(&[("host", "calls.example.uz")]);
    assert_eq!(SiteRules::STRICT.refusal(&named, false), None);
    let any = SiteRules {
        hosts: HostRule::Any,
        ..SiteRules::STRICT
    };
    assert_eq!(any.refusal(&named, true), None);
}

#[test]
fn foreign_origin_is_refused() {
    for (origin, host) in [
        ("http://127.0.0.1:9469", "127.0.0.1:9469"),
        ("http://127.0.0.1", "127.0.0.1:80"),
        ("https://LOCALHOST", "localhost"),
        ("http://[::1]:9469", "[::1]:9469"),
    ] {
        let own = [("host", host), ("origin", origin)];
        assert_eq!(refusal(&SiteRules::STRICT, &own), None, "{origin}");
    }
    for origin in [
        "null",
        "",
        "http://evil.example",
        "http://127.0.0.1",
        "http://127.0.0.1:3000",
        "http://127.0.0.1:9469.evil.example",
        "http://user@127.0.0.1:9469",
        "127.0.0.1:9469",
        "file://",
        "moz-extension://127.0.0.1:9469",
    ] {
        let foreign = [("host", "127.0.0.1:9469"), ("origin", origin)];
        let refused = refusal(&SiteRules::STRICT, &foreign);
        assert_eq!(refused, Some(SiteRefusal::Origin), "{origin}");
    }
    let two = [
        ("host", "127.0.0.1:9469"),
        ("origin", "http://127.0.0.1:9469"),
        ("origin", "http://evil.example"),
    ];
    assert_eq!(refusal(&SiteRules::STRICT, &two), Some(SiteRefusal::Origin));
}

#[test]
fn null_origin_of_a_same_origin_form_is_accepted() {
    let hidden = [
        ("host", "127.0.0.1:9470"),
        ("origin", "null"),
        ("sec-fetch-site", "same-origin"),
    ];
    assert_eq!(refusal(&SiteRules::STRICT, &hidden), None);
}

#[test]
fn proxy_can_pass_the_host_without_its_port() {
    let passed = [
        ("host", "calls.example.uz"),
        ("origin", "https://calls.example.uz:8443"),
    ];
    let rules = SiteRules {
        hosts: HostRule::Any,
        behind_proxy: true,
        navigation: false,
    };
    assert_eq!(refusal(&rules, &passed), None);
    let direct = SiteRules {
        behind_proxy: false,
        ..rules
    };
    assert_eq!(refusal(&direct, &passed), Some(SiteRefusal::Origin));
}

#[test]
fn cross_site_request_is_refused() {
    for site in ["same-origin", "same-site", "none"] {
        let own = [("host", "127.0.0.1"), ("sec-fetch-site", site)];
        assert_eq!(refusal(&SiteRules::STRICT, &own), None, "{site}");
    }
    for site in ["cross-site", "Cross-Site", " cross-site "] {
        let foreign = [("host", "127.0.0.1"), ("sec-fetch-site", site)];
        let refused = refusal(&SiteRules::STRICT, &foreign);
        assert_eq!(refused, Some(SiteRefusal::CrossSite), "{site}");
    }
    let two = [
        ("host", "127.0.0.1"),
        ("sec-fetch-site", "none"),
        ("sec-fetch-site", "cross-site"),
    ];
    let refused = refusal(&SiteRules::STRICT, &two);
    assert_eq!(refused, Some(SiteRefusal::CrossSite));
}

#[test]
fn cross_site_navigation_is_accepted_only_if_allowed() {
    let rules = SiteRules {
        navigation: true,
        ..SiteRules::STRICT
    };
    let redirect = [
        ("host", "127.0.0.1"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-dest", "document"),
    ];
    assert_eq!(refusal(&rules, &redirect), None);
    assert_eq!(
        refusal(&SiteRules::STRICT, &redirect),
        Some(SiteRefusal::CrossSite)
    );
    for (mode, dest) in [
        ("navigate", "iframe"),
        ("no-cors", "image"),
        ("cors", "empty"),
    ] {
        let other = [
            ("host", "127.0.0.1"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", mode),
            ("sec-fetch-dest", dest),
        ];
        assert_eq!(
            refusal(&rules, &other),
            Some(SiteRefusal::CrossSite),
            "{dest}"
        );
    }
}
