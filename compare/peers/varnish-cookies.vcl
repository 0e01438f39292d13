# Cookies that only count visitors do not make a page personal; with others in the request, the built-in rules pass it.
sub vcl_recv {
    if (req.http.Cookie) {
        set req.http.Cookie = regsuball(req.http.Cookie, "(^|;\s*)_(ga|ga_[A-Z0-9]+|gid|fbp)=[^;]*", "");
        set req.http.Cookie = regsub(req.http.Cookie, "^;\s*", "");
        if (req.http.Cookie == "") {
            unset req.http.Cookie;
        }
    }
}
