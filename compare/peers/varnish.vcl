vcl 4.1;

# Varnish's built-in rules are what is measured; only the origin is named, and how long a response is kept that says nothing.
backend origin {
    .host = "127.0.0.1";
    .port = "@ORIGIN@";
}

include "@COOKIES@";

sub vcl_backend_response {
    # A page without a length, passed on as it arrives, would end a client's connection of HTTP/1.0 unannounced; ab gives up over that.
    if (!beresp.http.Content-Length) {
        set beresp.do_stream = false;
    }
    if (!beresp.http.Cache-Control && !beresp.http.Expires) {
        set beresp.ttl = 1s;
        set beresp.grace = @GRACE@s;
    }
}
