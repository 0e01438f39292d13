# The directives of default.vcl of mattiasgeniar/varnish-6.0-configuration-templates, in our words.
vcl 4.1;

import std;

backend default {
    .host = "127.0.0.1";
    .port = "{origin_port}";
    .max_connections = 300;
    .first_byte_timeout = 300s;
    .connect_timeout = 5s;
    .between_bytes_timeout = 2s;
}

acl purge {
    "127.0.0.1";
}

sub vcl_recv {
    set req.http.Host = regsub(req.http.Host, ":[0-9]+", "");
    unset req.http.Proxy;
    set req.url = std.querysort(req.url);
    if (req.method == "PURGE") {
        if (client.ip !~ purge) {
            return (synth(405, "This IP is not allowed to send PURGE requests."));
        }
        return (purge);
    }
    if (req.method != "GET" && req.method != "HEAD") {
        return (pass);
    }
    set req.url = regsuball(req.url, "&(utm_source|utm_medium|utm_campaign|utm_content|gclid|cx|ie|cof|siteurl)=([A-z0-9_\-\.%25]+)", "");
    set req.url = regsuball(req.url, "\?(utm_source|utm_medium|utm_campaign|utm_content|gclid|cx|ie|cof|siteurl)=([A-z0-9_\-\.%25]+)", "?");
    set req.url = regsub(req.url, "\?&", "?");
    set req.url = regsub(req.url, "#.*$", "");
    set req.url = regsub(req.url, "\?$", "");

    set req.http.Cookie = regsuball(req.http.Cookie, "(has_js|__utm.|_ga|_gat|__gads|__qc.|__atuv.)=[^;]+(; )?", "");
    set req.http.Cookie = regsuball(req.http.Cookie, "^;\s*", "");
    if (req.http.Cookie ~ "^\s*$") {
        unset req.http.Cookie;
    }
    # A visitor's reload purges the page.
    if (req.http.Cache-Control ~ "(?i)no-cache" && !req.http.Via && !req.http.X-Purge) {
        return (purge);
    }
    if (req.url ~ "^[^?]*\.(bmp|css|csv|gif|gz|ico|jpeg|jpg|js|mp3|mp4|ogg|pdf|png|svg|tgz|ttf|txt|webp|woff|woff2|xml|zip)(\?.*)?$") {
        unset req.http.Cookie;
        return (hash);
    }
    set req.http.Surrogate-Capability = "key=ESI/1.0";
    if (req.http.Authorization) {
        return (pass);
    }
    return (hash);
}

sub vcl_hash {
    if (req.http.Cookie) {
        hash_data(req.http.Cookie);
    }
    if (req.http.X-Forwarded-Proto) {
        hash_data(req.http.X-Forwarded-Proto);
    }
}

sub vcl_backend_response {
    if (beresp.http.Surrogate-Control ~ "ESI/1.0") {
        unset beresp.http.Surrogate-Control;
        set beresp.do_esi = true;
    }
    if (bereq.url ~ "^[^?]*\.(bmp|css|csv|gif|gz|ico|jpeg|jpg|js|mp3|mp4|ogg|pdf|png|svg|tgz|ttf|txt|webp|woff|woff2|xml|zip)(\?.*)?$") {
        unset beresp.http.Set-Cookie;
    }
    if (beresp.status == 301 || beresp.status == 302) {
        set beresp.http.Location = regsub(beresp.http.Location, ":[0-9]+", "");
    }
    if (beresp.ttl <= 0s || beresp.http.Set-Cookie || beresp.http.Vary == "*") {
        set beresp.ttl = 120s;
        set beresp.uncacheable = true;
        return (deliver);
    }
    if (beresp.status == 500 || beresp.status == 502 || beresp.status == 503 || beresp.status == 504) {
        return (abandon);
    }
    set beresp.grace = 6h;
    return (deliver);
}

sub vcl_deliver {
    if (obj.hits > 0) {
        set resp.http.X-Cache = "HIT";
    } else {
        set resp.http.X-Cache = "MISS";
    }
    unset resp.http.X-Powered-By;
    unset resp.http.Server;
    unset resp.http.X-Drupal-Cache;
    unset resp.http.X-Varnish;
    unset resp.http.Via;
    unset resp.http.Link;
    unset resp.http.X-Generator;
    return (deliver);
}

sub vcl_purge {
    if (req.method != "PURGE") {
        set req.http.X-Purge = "Yes";
        return (restart);
    }
}
