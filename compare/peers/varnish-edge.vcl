vcl 4.1;

# Varnish's built-in rules; tags are replaced where the page announces them.
backend origin {
    .host = "127.0.0.1";
    .port = "@ORIGIN@";
}

include "@COOKIES@";

sub vcl_backend_response {
    if (beresp.http.Surrogate-Control ~ "ESI/1.0") {
        # Its built-in rules leave the lifetime of such a page to VCL.
        unset beresp.http.Surrogate-Control;
        set beresp.do_esi = true;
    }
}
