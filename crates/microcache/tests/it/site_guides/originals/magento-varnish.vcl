# The directives of app/code/Magento/PageCache/etc/varnish7.vcl of magento/magento2, in our words.
vcl 4.0;

import std;

backend default {
    .host = "127.0.0.1";
    .port = "{origin_port}";
    .first_byte_timeout = 600s;
}

acl purge {
    "127.0.0.1";
}

sub vcl_recv {
    set req.url = std.querysort(req.url);
    if (req.method == "PURGE") {
        if (client.ip !~ purge) {
            return (synth(405, "Method not allowed"));
        }
        if (!req.http.X-Magento-Tags-Pattern && !req.http.X-Pool) {
            return (synth(400, "X-Magento-Tags-Pattern or X-Pool header required"));
        }
        if (req.http.X-Magento-Tags-Pattern) {
            ban("obj.http.X-Magento-Tags ~ " + req.http.X-Magento-Tags-Pattern);
        }
        if (req.http.X-Pool) {
            ban("obj.http.X-Pool ~ " + req.http.X-Pool);
        }
        return (synth(200, "Purged"));
    }
    if (req.method != "GET" && req.method != "HEAD") {
        return (pass);
    }
    if (req.url ~ "/customer|/checkout" || req.url ~ "^/(pub/)?health_check.php$") {
        return (pass);
    }
    std.collect(req.http.Cookie);
    if (req.url ~ "[?&](_ga|fbclid|gclid|mc_[a-z]+|utm_[a-z]+)=") {
        set req.url = regsuball(req.url, "(_ga|fbclid|gclid|mc_[a-z]+|utm_[a-z]+)=[-_A-z0-9+()%.]+&?", "");
        set req.url = regsub(req.url, "[?&]+$", "");
    }
    if (req.url ~ "^/(pub/)?(media|static)/") {
        return (pass);
    }
    if (req.url ~ "/graphql" && !req.http.X-Magento-Cache-Id && req.http.Authorization ~ "^Bearer") {
        return (pass);
    }
    return (hash);
}

sub vcl_hash {
    if ((req.url !~ "/graphql" || !req.http.X-Magento-Cache-Id) && req.http.Cookie ~ "X-Magento-Vary=") {
        hash_data(regsub(req.http.Cookie, "^.*?X-Magento-Vary=([^;]+).*$", "\1"));
    }
    if (req.http.X-Forwarded-Proto) {
        hash_data(req.http.X-Forwarded-Proto);
    }
    if (req.url ~ "/graphql") {
        if (req.http.X-Magento-Cache-Id) {
            hash_data(req.http.X-Magento-Cache-Id);
            if (req.http.Authorization ~ "^Bearer") {
                hash_data("Authorized");
            }
        }
        hash_data(req.http.Store);
        hash_data(req.http.Content-Currency);
    }
}

sub vcl_backend_response {
    if (beresp.status == 403 || beresp.status == 404 || beresp.status >= 500) {
        set beresp.uncacheable = true;
        set beresp.ttl = 120s;
        return (deliver);
    }
    set beresp.grace = 3d;
    if (beresp.http.Content-Type ~ "text") {
        set beresp.do_esi = true;
    }
    if (beresp.http.Content-Type ~ "text|javascript|json|css") {
        set beresp.do_gzip = true;
    }
    if (beresp.http.Cache-Control ~ "private") {
        set beresp.uncacheable = true;
        set beresp.ttl = 86400s;
        return (deliver);
    }
    if (beresp.ttl > 0s) {
        std.collect(beresp.http.Set-Cookie);
        if ((bereq.url !~ "/graphql" || !bereq.http.X-Magento-Cache-Id)
            && bereq.http.Cookie !~ "X-Magento-Vary=" && beresp.http.Set-Cookie ~ "X-Magento-Vary=") {
            set beresp.ttl = 0s;
            set beresp.uncacheable = true;
        }
        unset beresp.http.Set-Cookie;
    }
    if (beresp.ttl <= 0s || beresp.http.Cache-Control ~ "no-cache|no-store" || beresp.http.Vary == "*") {
        set beresp.ttl = 120s;
        set beresp.uncacheable = true;
    }
    if (bereq.url ~ "/graphql" && bereq.http.X-Magento-Cache-Id
        && bereq.http.X-Magento-Cache-Id != beresp.http.X-Magento-Cache-Id) {
        set beresp.ttl = 0s;
        set beresp.uncacheable = true;
    }
    return (deliver);
}

sub vcl_deliver {
    if (resp.http.Cache-Control !~ "private" && req.url !~ "^/(pub/)?(media|static)/") {
        # The published file adds other words, `Pragma` and `Expires` for old browsers.
        set resp.http.Cache-Control = "no-store";
    }
    unset resp.http.Age;
    unset resp.http.X-Magento-Debug;
    unset resp.http.X-Magento-Tags;
    unset resp.http.X-Powered-By;
    unset resp.http.Server;
    unset resp.http.X-Varnish;
    unset resp.http.Via;
    unset resp.http.Link;
}
