vcl 4.1;

# Varnish's built-in rules are what is measured; only the origin is named.
backend origin {
    .host = "127.0.0.1";
    .port = "@ORIGIN@";
}
