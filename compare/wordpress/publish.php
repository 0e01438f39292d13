<?php
// Publishes a post with the title that is given, on the site at the given host. Prints when it was purged.
$_SERVER['HTTP_HOST'] = $argv[1];
require __DIR__ . '/wp-load.php';
wp_insert_post(['post_title' => $argv[2], 'post_content' => 'News.', 'post_status' => 'publish', 'post_author' => 1]);
