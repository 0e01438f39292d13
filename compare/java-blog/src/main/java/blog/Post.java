package blog;

import jakarta.persistence.Column;
import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.Table;
import java.time.Instant;

/** One row of the blog. */
@Entity
@Table(name = "post")
class Post {
    @Id
    private int id;

    @Column(nullable = false)
    private String author;

    @Column(nullable = false)
    private String title;

    @Column(nullable = false)
    private Instant written;

    @Column(nullable = false, length = Blogs.TEXT_LENGTH)
    private String text;

    /** For Hibernate. */
    protected Post() {}

    Post(int id, String author, String title, Instant written, String text) {
        this.id = id;
        this.author = author;
        this.title = title;
        this.written = written;
        this.text = text;
    }

    int id() {
        return id;
    }

    String author() {
        return author;
    }

    String title() {
        return title;
    }

    Instant written() {
        return written;
    }

    String text() {
        return text;
    }
}
