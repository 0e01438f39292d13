vcl 4.1;

# Varnish's built-in rules are what is measured; only the origin is named, and how long a response is kept that says nothing.
backend origin {
    .host = "127.0.0.1";
    .port = "@ORIGIN@";
}

sub vcl_backend_response {
    if (!beresp.http.Cache-Control && !beresp.http.Expires) {
        set beresp.ttl = 1s;
        set beresp.grace = @GRACE@s;
    }
}
