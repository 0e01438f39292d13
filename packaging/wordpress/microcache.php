<?php
/**
 * Plugin Name: Microcache
 * Description: Tags every page with the posts, lists, terms, authors and comments on it, and purges by tag the pages that a change concerns.
 * Version: 0.1.0
 * Requires at least: 5.9
 * Requires PHP: 7.4
 * License: MIT OR Apache-2.0
 *
 * docs/guides/wordpress.md of Microcache has the settings, the tags, and how this was tried.
 */

namespace Microcache;

defined('ABSPATH') || exit;

/** Tags of a page. A page with more is purged by every change. */
const MOST_TAGS = 120;
/** Names of one purge, and names of a request above which the whole site is purged. */
const MOST_NAMES = 256;
const MOST_CHANGES = 1024;
/** Seconds that an editor waits at most. */
const TIMEOUT = 2;
/** Types without pages of their own, which any page may show. */
const PARTS = ['nav_menu_item', 'wp_navigation', 'wp_block', 'wp_template', 'wp_template_part', 'wp_global_styles', 'custom_css'];
/** Options that any page may depend on. */
const SETTINGS = '/^(blog(name|description|_public)|(show|page)_(on|for)_\w+|posts_per_\w+|sidebars_widgets|widget_.*|site_icon|theme_mods_.*|permalink_structure'
    . '|(category|tag)_base|(date|time)_format|timezone_string|gmt_offset|WPLANG|(default_)?comment.*|thread_comments.*|(show_)?avatar.*)$/';

/** What differs where a post stands, beside its terms; hooks after which every page may differ; queries for terms that are known. */
const PLACE = ['post_title', 'post_name', 'post_date', 'post_author', 'post_parent', 'post_password', 'post_type', 'menu_order'];
const SITE = ['switch_theme', 'customize_save_after', 'wp_update_nav_menu', 'wp_delete_nav_menu', 'activated_plugin', 'deactivated_plugin',
    'upgrader_process_complete', 'woocommerce_settings_saved'];
const NAMED = ['object_ids' => 1, 'include' => 1, 'slug' => 1, 'name' => 1, 'term_taxonomy_id' => 1];

final class Request {
    public static array $shown = [];
    public static array $changed = [];
}

/** Sites that share a Microcache do not share tags. */
function name(string $tag): string {
    return substr(md5((defined('DB_NAME') ? DB_NAME : '') . $GLOBALS['wpdb']->prefix), 0, 6) . "-$tag";
}

function show(string ...$tags): void {
    foreach ($tags as $tag) {
        Request::$shown[name($tag)] = true;
    }
}

function purge(string ...$tags): void {
    foreach ($tags as $tag) {
        Request::$changed[name($tag)] = true;
    }
}

/* What a page shows: pID a post, kID its title or link, uID an author, nID a term's name; and the lists on it: l-TYPE,
   x-TYPE (with any edit), tID of a term, aID of an author, dDATE, search, comments, users, tax-NAME; end and adj for neighbours. */

function show_link($id): void {
    if ($id && is_post_type_viewable(get_post_type($id) ?: '')) {
        show("k$id");
    }
}

/** The lists of a query other than the page's own, by types alone. */
function show_query(\WP_Query $query): void {
    foreach ((array) ($query->get('post_type') ?: ($query->get('tax_query') ? 'any' : 'post')) as $type) {
        if ($type === 'any' || is_post_type_viewable($type)) {
            show("l-$type", ...($query->get('suppress_filters') ? ["x-$type"] : []));
        }
    }
}

/** The list of the page's own query: the narrowest tag that each post on it has. */
function show_page(\WP_Query $query): void {
    $terms = $query->tax_query->queried_terms ?? [];
    $object = $query->get_queried_object();
    if ($query->is_404() || http_response_code() >= 300) {
        show('miss');
    } elseif ($query->is_comment_feed()) {
        $query->is_singular() || show('comments');
    } elseif ($query->is_search()) {
        show('search');
    } elseif ($object instanceof \WP_Term && count($terms) === 1 && count(current($terms)['terms'] ?? []) === 1) {
        show("t$object->term_id", "n$object->term_id");
    } elseif ($query->is_author() && $object instanceof \WP_User) {
        show("a$object->ID", "u$object->ID");
    } elseif ($query->is_date() && $query->get('year')) {
        show('d' . implode('-', array_filter(array_map([$query, 'get'], ['year', 'monthnum', 'day']))));
    } elseif (!$query->is_singular()) {
        $terms ? show('l-any') : show_query($query);
    }
}

/** The field, once. Output that began before its end does not know all of its tags. */
function field(bool $is_complete): void {
    $is_needed = fn($tag) => !preg_match('/^(\w+-)k(\d+)$/', $tag, $of) || !isset(Request::$shown["$of[1]p$of[2]"]);
    $tags = array_filter(Request::$shown, $is_needed, ARRAY_FILTER_USE_KEY);
    if (!$is_complete || count($tags) > MOST_TAGS) {
        $tags = [name('any') => true];
    }
    header('Cache-Tag: ' . implode(',', array_keys($tags + [name('site') => true])), false);
}

function is_shared(): bool {
    return !is_user_logged_in() && !is_admin();
}

/* Changes. */

function is_shown(?\WP_Post $post, ?string $status = null): bool {
    $status = $status ?? ($post->post_status ?? '');
    return $post && is_post_type_viewable($post->post_type) && ($status === 'inherit' || is_post_status_viewable($status));
}

/** The text of a post changed. */
function edited(\WP_Post $post): void {
    purge("p$post->ID", "x-$post->post_type", 'x-any', 'search');
}

/** A post came, went or moved: every list that has or had it. */
function listed(\WP_Post $post): void {
    edited($post);
    [$year, $month, $day] = array_map('intval', explode('-', substr($post->post_date, 0, 10)));
    $newer = get_posts(['post_type' => $post->post_type, 'numberposts' => 1, 'fields' => 'ids', 'exclude' => [$post->ID], 'date_query' => [['after' => $post->post_date]]]);
    purge("k$post->ID", "l-$post->post_type", 'l-any', "a$post->post_author", "d$year", "d$year-$month", "d$year-$month-$day", 'miss', 'users',
        ($newer ? 'adj-' : 'end-') . $post->post_type);
    foreach (get_object_taxonomies($post->post_type) as $taxonomy) {
        $terms = wp_get_object_terms($post->ID, $taxonomy);
        in_terms(is_wp_error($terms) ? [] : $terms);
    }
}

function in_terms(array $terms): void {
    foreach ($terms as $term) {
        foreach ([$term->term_id, ...get_ancestors($term->term_id, $term->taxonomy, 'taxonomy')] as $id) {
            purge("t$id", "tax-$term->taxonomy");
        }
    }
}

function comment_changed($comment): void {
    $comment = get_comment($comment);
    purge("p$comment->comment_post_ID", 'comments');
}

/** The purge itself, once at the end of the request. What could not be sent is sent with the next one, or in a minute. */
function flush(bool $retries = false): void {
    $tags = array_keys(Request::$changed);
    Request::$changed = [];
    if (!$tags && !$retries) {
        return;
    }
    $tags = array_unique(array_merge($tags, $waiting = (array) get_option('microcache_waiting', [])));
    $tags = count($tags) > MOST_CHANGES ? [name('site')] : $tags;
    foreach (array_chunk($tags, MOST_NAMES - 1) as $nth => $some) {
        $error = sent([...$some, name('any')]);
        if ($error) {
            error_log("Microcache: pages were not purged, and are tried again in a minute: $error");
            wp_schedule_single_event(time() + 60, 'microcache_retry');
            update_option('microcache_waiting', array_slice($tags, $nth * (MOST_NAMES - 1)), false);
            return;
        }
    }
    if ($waiting) {
        delete_option('microcache_waiting');
    }
}

/** Returns the reason why a purge failed. A redirect is not followed: the secret is for the named server. */
function sent(array $tags): string {
    $request = ['timeout' => TIMEOUT, 'redirection' => 0, 'method' => 'PURGE', 'headers' => ['Cache-Tag' => implode(',', $tags)]];
    $url = defined('MICROCACHE_URL') ? MICROCACHE_URL : '';
    if (defined('MICROCACHE_ADMIN')) {
        $url = rtrim(MICROCACHE_ADMIN, '/') . '/v1/purges';
        $secret = defined('MICROCACHE_TOKEN') ? ['Authorization' => 'Bearer ' . MICROCACHE_TOKEN] : [];
        $request = ['method' => 'POST', 'headers' => ['Content-Type' => 'application/json'] + $secret, 'body' => wp_json_encode(['tag' => $tags])] + $request;
    }
    $answer = wp_remote_request($url, $request);
    if (is_wp_error($answer)) {
        return $answer->get_error_message();
    }
    $status = wp_remote_retrieve_response_code($answer);
    return $status === 200 ? '' : "$url answered $status: " . substr(wp_remote_retrieve_body($answer), 0, 200);
}

/** Notes what a filter sees, and leaves its value as it is. */
function see(string $hook, callable $note, int $arguments = 1): void {
    add_filter($hook, function (...$given) use ($note) {
        $note(...$given);
        return $given[0] ?? null;
    }, 10, $arguments);
}

function watch_pages(): void {
    see('posts_pre_query', fn($_, $query) => $query->is_main_query() || show_query($query), 2);
    see('the_posts', fn($posts) => array_map(fn($post) => show("p$post->ID", "u$post->post_author"), (array) $posts));
    see('the_title', fn($_, $id = 0) => show_link($id), 2);
    foreach (['post_link', 'post_type_link', 'page_link', 'attachment_link'] as $hook) {
        see($hook, fn($_, $post) => show_link($post->ID ?? $post), 2);
    }
    see('wp_get_attachment_image_src', fn($_, $id) => show("p$id"), 2);
    see('get_pages', fn($_, $query) => show('l-' . ($query['post_type'] ?? 'page')), 2);
    see('getarchives_where', fn($_, $query) => show('l-' . ($query['post_type'] ?? 'post')), 2);
    see('get_calendar', fn() => show('l-post'));
    foreach (['previous', 'next'] as $side) {
        see("{$side}_post_link", fn($_, $format, $link, $post) => show('adj-' . get_post_type(), $post ? "p$post->ID" : 'end-' . get_post_type()), 4);
    }
    see('get_the_terms', fn($terms) => array_map(fn($term) => is_taxonomy_viewable($term->taxonomy) && show("n$term->term_id"), is_array($terms) ? $terms : []));
    see('term_link', fn($_, $term) => show("n$term->term_id"), 2);
    see('get_terms', fn($_, $names, $query) => array_filter(array_intersect_key($query, NAMED)) || show(...array_map(fn($name) => "tax-$name", array_values((array) $names))), 3);
    see('author_link', fn($_, $id) => show("u$id"), 2);
    see('pre_get_users', fn() => show('users'));
    see('comments_pre_query', fn($_, $query) => show(empty($query->query_vars['post_id']) ? 'comments' : 'p' . $query->query_vars['post_id']), 2);
    add_action('microcache_show', __NAMESPACE__ . '\show', 10, 99);

    add_action('template_redirect', fn() => is_shared() && ob_start(function ($page, $phase) {
        if (!headers_sent() && ($phase & PHP_OUTPUT_HANDLER_START)) {
            show_page($GLOBALS['wp_query']);
            field(($phase & PHP_OUTPUT_HANDLER_FINAL) && did_action('shutdown'));
        }
        return $page;
    }), PHP_INT_MIN);
    add_action('rest_api_init', function () {
        foreach (get_post_types(['show_in_rest' => true]) as $type) {
            see("rest_prepare_$type", fn($_, $post) => show("p$post->ID"), 2);
        }
        see('rest_pre_echo_response', fn() => is_shared() && !headers_sent() && field(true));
    });
}

function watch_changes(): void {
    add_action('transition_post_status', function ($new, $old, $post) {
        if (in_array($post->post_type, PARTS, true)) {
            purge('site');
        } elseif (is_shown($post, $new) || is_shown($post, $old)) {
            $new === $old ? edited($post) : listed($post);
        }
    }, 10, 3);
    add_action('post_updated', function ($id, $after, $before) {
        $moved = array_filter(PLACE, fn($field) => $after->$field != $before->$field);
        if ($moved && (is_shown($before) || is_shown($after))) {
            listed($before);
            listed($after);
        }
    }, 10, 3);
    add_action('set_object_terms', function ($id, $terms, $new, $taxonomy, $append, $old) {
        $post = get_post($id);
        $differing = array_merge(array_diff($new, $old), array_diff($old, $new));
        if ($differing && is_shown($post)) {
            listed($post);
            in_terms(array_filter(array_map(fn($id) => get_term_by('term_taxonomy_id', $id), $differing)));
        }
    }, 10, 6);
    foreach (['before_delete_post', 'delete_attachment'] as $hook) {
        add_action($hook, fn($id, $post) => is_shown($post) && listed($post), 10, 2);
    }
    add_action('clean_post_cache', fn($id, $post) => is_shown($post) && purge("p$id", "x-$post->post_type", 'x-any'), 10, 2);
    add_action('transition_comment_status', fn($new, $old, $comment) => in_array('approved', [$new, $old], true) && comment_changed($comment), 10, 3);
    foreach (['wp_insert_comment', 'edit_comment'] as $hook) {
        add_action($hook, fn($id) => wp_get_comment_status($id) === 'approved' && comment_changed($id));
    }
    foreach (['created_term', 'edited_term', 'delete_term'] as $hook) {
        add_action($hook, fn($id, $_, $taxonomy) => purge("t$id", "n$id", "tax-$taxonomy"), 10, 3);
    }
    foreach (['profile_update', 'user_register', 'deleted_user'] as $hook) {
        add_action($hook, fn($id) => purge("a$id", "u$id", 'users'));
    }
    foreach (['added_option', 'updated_option', 'deleted_option'] as $hook) {
        add_action($hook, fn($name) => preg_match(SETTINGS, $name) ? purge('site') : ($name === 'sticky_posts' && purge('l-post', 'l-any')));
    }
    foreach (SITE as $hook) {
        add_action($hook, fn() => purge('site'));
    }
    foreach (['woocommerce_product_set_stock', 'woocommerce_variation_set_stock'] as $hook) {
        add_action($hook, fn($product) => purge('p' . ($product->get_parent_id() ?: $product->get_id())));
    }
    add_action('woocommerce_product_set_stock_status', fn($id) => is_shown(get_post($id)) && listed(get_post($id)));
    add_action('microcache_purge', __NAMESPACE__ . '\purge', 10, 99);
    add_action('microcache_retry', fn() => flush(true));
    add_action('shutdown', fn() => flush(), 0);
}

if (defined('MICROCACHE_ADMIN') || defined('MICROCACHE_URL')) {
    watch_pages();
    watch_changes();
} else {
    add_action('admin_notices', function () {
        echo '<div class="notice notice-warning"><p>Microcache: define <code>MICROCACHE_URL</code> in <code>wp-config.php</code>.</p></div>';
    });
}
