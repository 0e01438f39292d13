# The lines for Varnish of WooCommerce's documentation (How to configure caching plugins), inside of the VCL for WordPress that sites
# usually put them in.
vcl 4.1;

backend default {
    .host = "127.0.0.1";
    .port = "{origin_port}";
}

acl purge {
    "127.0.0.1";
}

sub vcl_recv {
    if (req.method == "PURGE") {
        if (client.ip !~ purge) {
            return (synth(405));
        }
        return (purge);
    }
    if (req.method != "GET" && req.method != "HEAD") {
        return (pass);
    }
    if (req.url ~ "wp-admin|wp-login|wp-cron.php|xmlrpc.php" || req.url ~ "preview=true") {
        return (pass);
    }
    if (req.url ~ "^/(cart|my-account|checkout|addons|logout|lost-password|wc-api)") {
        return (pass);
    }
    if (req.url ~ "\?add-to-cart=" || req.url ~ "\?wc-ajax=") {
        return (pass);
    }
    if (req.http.Authorization) {
        return (pass);
    }
    if (req.http.Cookie ~ "wordpress_[a-zA-Z0-9]+|wp-postpass|woocommerce_cart_hash|woocommerce_items_in_cart|wp_woocommerce_session_") {
        return (pass);
    }
    set req.http.Cookie = regsuball(req.http.Cookie, "(^|; ) *(__utm.|_ga)=[^;]+;? *", "\1");
    if (req.http.Cookie == "") {
        unset req.http.Cookie;
    }
    if (req.url ~ "\.(css|js|png|gif|jpe?g|ico|woff2?|ttf|svg)$") {
        unset req.http.Cookie;
    }
    return (hash);
}

sub vcl_backend_response {
    if (bereq.uncacheable) {
        return (deliver);
    }
    if (bereq.url ~ "\.(css|js|png|gif|jpe?g|ico|woff2?|ttf|svg)$") {
        unset beresp.http.Set-Cookie;
        set beresp.ttl = 1d;
    } else {
        set beresp.ttl = 5m;
    }
    set beresp.grace = 1h;
    return (deliver);
}

sub vcl_deliver {
    if (obj.hits > 0) {
        set resp.http.X-Cache = "HIT";
    } else {
        set resp.http.X-Cache = "MISS";
    }
    unset resp.http.Server;
    unset resp.http.X-Powered-By;
    unset resp.http.X-Varnish;
    unset resp.http.Via;
}
