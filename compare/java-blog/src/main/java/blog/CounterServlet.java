package blog;

import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;

/** What the application has seen: GET tells, DELETE counts from zero. */
class CounterServlet extends HttpServlet {
    private final transient Counters counters;

    CounterServlet(Counters counters) {
        this.counters = counters;
    }

    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
        response.setContentType("application/json");
        response.setHeader("Cache-Control", "no-store");
        response.getWriter().write(counters.json());
    }

    @Override
    protected void doDelete(HttpServletRequest request, HttpServletResponse response) throws IOException {
        counters.reset();
        doGet(request, response);
    }
}
