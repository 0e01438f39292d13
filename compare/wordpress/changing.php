<?php
// A front page that is another one every second, and says for how long browsers may keep it: for visits that come again.
add_action('send_headers', function () {
    header('Cache-Control: max-age=1, stale-while-revalidate=86400');
});
add_action('wp_footer', function () {
    printf('<p>It is %s, and %d people are here.</p>', gmdate('H:i:s'), random_int(1, 999));
});
