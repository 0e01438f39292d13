package blog;

import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;

/** Every url is a page of five posts. It says nothing about caching, as such applications do. */
class PageServlet extends HttpServlet {
    /** So many months in the archive at the side make 27 KB of a page with five posts. */
    private static final int MONTHS = 172;

    private static final int FIRST_YEAR = 2000;
    private static final String FRAME = frame();

    private final transient Blogs blogs;
    private final transient Counters counters;

    PageServlet(Blogs blogs, Counters counters) {
        this.blogs = blogs;
        this.counters = counters;
    }

    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
        counters.begin();
        try {
            var page = page(blogs.someByChance(), blogs.countByChance()).getBytes(StandardCharsets.UTF_8);
            response.setContentType("text/html; charset=utf-8");
            response.setContentLength(page.length);
            response.getOutputStream().write(page);
        } finally {
            counters.end();
        }
    }

    private static String page(List<Post> posts, long count) {
        var page = new StringBuilder("<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>Blog</title></head>\n<body>\n");
        page.append("<h1>Blog</h1>\n<p>").append(count).append(" posts to read.</p>\n");
        for (var post : posts) {
            page.append("<article id=\"post-").append(post.id()).append("\">\n<h2>").append(post.title()).append("</h2>\n<p>By ")
                    .append(post.author()).append(" on ").append(post.written()).append("</p>\n<p>").append(post.text())
                    .append("</p>\n</article>\n");
        }
        return page.append(FRAME).append("</body>\n</html>\n").toString();
    }

    /** What stands beside the posts on every page. */
    private static String frame() {
        var frame = new StringBuilder("<aside>\n<h2>Archive</h2>\n<ul class=\"archive\">\n");
        for (int month = 0; month < MONTHS; month++) {
            var when = "%d-%02d".formatted(FIRST_YEAR + month / 12, month % 12 + 1);
            frame.append("<li class=\"archive-month\"><a href=\"/archive/").append(when).append("\" title=\"All posts of ").append(when)
                    .append("\">").append(when).append("</a></li>\n");
        }
        return frame.append("</ul>\n</aside>\n").toString();
    }
}
