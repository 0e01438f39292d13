<?php
// A front page that updates itself, and is purged when something is published. It tells the web server's log what it
// shows: that is how compare/live sees it.
add_action('send_headers', function () {
    header('Cache-Control: max-age=3600');
});
add_action('wp_head', function () {
    echo '<script type="module" src="/.well-known/microcache/live.js"></script>';
    echo "<script>document.addEventListener('microcache:update', () => fetch('/?shown=' + document.querySelector('main h2').textContent.trim()));</script>";
});
// At the end of the request, as plugins that purge do.
add_action('publish_post', function () {
    add_action('shutdown', function () {
        wp_remote_request(home_url('/'), ['method' => 'PURGE']);
        printf('%.3f', microtime(true));
    });
});
