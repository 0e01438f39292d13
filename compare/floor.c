/*
 * The floor: the least work with which a server on this kernel can read a request and write the same bytes as a cache hit.
 * Every other server's CPU time per request is read as a multiple of this one's. It also is the origin the caches fill from.
 *
 *   floor -p PORT [-t THREADS] [-n COPIES [-k]] [-c] [-o] SIZE...
 *   floor -p PORT -b
 *
 * GET /SIZE[/anything] answers with SIZE bytes, for the sizes given; GET /no-store/SIZE[/anything] the same, marked no-store.
 * GET /count tells how many bodies have been sent so far. With -o the heads are an origin's, without it a cache hit's.
 * With -n there are so many copies of each answer, and GET /SIZE/K takes the K-th: a cache of so many urls has to fetch each
 * answer from main memory, and so does this server then. With -k as well it has the urls /SIZE/1 to /SIZE/COPIES and no others,
 * and finds each of them as a cache has to: by its path, in a hash table. With -c it ends a connection after a request that
 * says `Connection: close`; without -c it does not look for that.
 *
 * What keeps it honest: it reads what the client sends, finds the end of each head, picks the answer by the request's path,
 * takes pipelined requests and heads in pieces, and carries on after partial writes. What it leaves out is everything else.
 * The calls per request are the fewest there are: one recv, one send, and a share of an edge-triggered epoll_wait.
 *
 * With -b it is a broadcaster: a GET, whatever its path, is answered with an event stream, or becomes a WebSocket, and the body of any other request is
 * an event for all of them, which costs one send for each. Whoever publishes is answered when all have been served. A socket without room misses the event.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_SIZES = 16, MAX_THREADS = 64, MAX_HEAD = 8192, MAX_EVENTS = 256, EVENT_OVERHEAD = 128 };

struct answer {
    size_t length;
    char *bytes; /* head and body in one piece, so that one send can take both */
};

static struct {
    size_t body;
    struct answer *storable; /* `copies` of them, unless they are in the table */
    struct answer no_store, last; /* the last one of a connection */
} objects[MAX_SIZES];
static int object_count;

/* What a cache has for each response at the least: its path and the answer in one piece. */
struct entry {
    uint32_t path_length, answer_length;
    char bytes[]; /* the path, then the answer */
};

/* Open addressing; a power of two of slots, at least half of them empty. */
static struct slot {
    uint64_t hash;
    struct entry *entry;
} *table;
static size_t table_mask;

/* One counter per thread, each on its own cache line, so that counting costs the measured server nothing. */
static struct {
    _Alignas(64) atomic_ulong sent;
} counters[MAX_THREADS];

struct connection {
    int fd;
    size_t filled;             /* bytes of `in` that hold unanswered requests */
    const char *out;           /* what is still to be written of the present answer */
    size_t out_left;
    char *rest;                /* of a broadcaster: what the kernel had no room for of an event, once it had taken a part of it */
    bool is_last;              /* the present answer is the last one */
    bool is_subscriber, is_websocket;
    size_t place;              /* among the subscribers */
    char count_answer[128];
    char in[MAX_HEAD];
};

static uint16_t port;
static bool is_origin, is_broadcaster, has_table, may_close;
static struct connection **subscribers;
static size_t subscriber_count, subscriber_room;
static int threads = 1;
static size_t copies = 1;

static _Noreturn void die(const char *what) {
    perror(what);
    exit(1);
}

/* The answer begins `before` bytes into what is allocated for it. */
static struct answer prebuild(size_t body, const char *cache_control, const char *further, size_t before) {
    char date[64], head[512];
    time_t now = time(NULL);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime(&now));
    int head_length = snprintf(head, sizeof head,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: %s\r\nDate: %s\r\nContent-Length: %zu\r\n%s%s\r\n",
        cache_control, date, body, further,
        is_origin ? "" : "Age: 1\r\nVia: 1.1 floor\r\nCache-Status: floor; hit; ttl=86399\r\n");
    char *allocated = malloc(before + head_length + body);
    if (!allocated) die("malloc");
    struct answer answer = {.length = head_length + body, .bytes = allocated + before};
    memcpy(answer.bytes, head, head_length);
    for (size_t i = 0; i < body; i++) answer.bytes[head_length + i] = 'a' + (i + i / 251) % 26;
    return answer;
}

/* FNV-1a, whose low bits are made to depend on all of it. */
static uint64_t hash_of(const char *path, size_t length) {
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)path[i]) * 0x100000001b3;
    return hash ^ hash >> 32;
}

static void allocate_table(size_t entries) {
    size_t slots = 2;
    while (slots < 2 * entries) slots *= 2;
    table = calloc(slots, sizeof *table);
    if (!table) die("calloc");
    table_mask = slots - 1;
}

/* The slot of a path, empty if it has no entry. */
static struct slot *slot_of(uint64_t hash, const char *path, size_t length) {
    size_t i = hash & table_mask;
    for (; table[i].entry; i = (i + 1) & table_mask) {
        const struct entry *entry = table[i].entry;
        if (table[i].hash == hash && entry->path_length == length && memcmp(entry->bytes, path, length) == 0) break;
    }
    return &table[i];
}

static void insert(size_t body, size_t copy) {
    char path[64];
    int length = snprintf(path, sizeof path, "%zu/%zu", body, copy);
    struct answer answer = prebuild(body, "max-age=86400", "", sizeof(struct entry) + length);
    struct entry *entry = (struct entry *)(answer.bytes - length - sizeof(struct entry));
    entry->path_length = length;
    entry->answer_length = answer.length;
    memcpy(entry->bytes, path, length);
    uint64_t hash = hash_of(path, length);
    *slot_of(hash, path, length) = (struct slot){hash, entry};
}

static void answer_count(struct connection *c) {
    unsigned long sum = 0;
    for (int i = 0; i < MAX_THREADS; i++) sum += atomic_load_explicit(&counters[i].sent, memory_order_relaxed);
    char text[24];
    int digits = snprintf(text, sizeof text, "%lu\n", sum);
    c->out_left = snprintf(c->count_answer, sizeof c->count_answer,
        "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: %d\r\n\r\n%s", digits, text);
    c->out = c->count_answer;
}

static void count_sent(int thread) {
    atomic_ulong *sent = &counters[thread].sent;
    atomic_store_explicit(sent, atomic_load_explicit(sent, memory_order_relaxed) + 1, memory_order_relaxed);
}

/* Points the connection at its answer. False when the request, which ends at `end`, is none that this server knows. */
static bool choose_answer(struct connection *c, const char *head, const char *end, int thread) {
    static const char get[] = "GET /", no_store[] = "no-store/", count[] = "count ", last[] = "\r\nConnection: close\r\n";
    if (strncmp(head, get, sizeof get - 1) != 0) return false;
    const char *path = head + sizeof get - 1;
    if (strncmp(path, count, sizeof count - 1) == 0) {
        answer_count(c);
        return true;
    }
    if (table) {
        const char *space = memchr(path, ' ', end - path);
        if (!space) return false;
        size_t length = space - path;
        const struct entry *entry = slot_of(hash_of(path, length), path, length)->entry;
        if (!entry) return false;
        c->out = entry->bytes + entry->path_length;
        c->out_left = entry->answer_length;
        count_sent(thread);
        return true;
    }
    bool private = strncmp(path, no_store, sizeof no_store - 1) == 0;
    if (private) path += sizeof no_store - 1;
    size_t size = 0;
    while (*path >= '0' && *path <= '9') size = size * 10 + (*path++ - '0');
    for (int i = 0; i < object_count; i++) {
        if (objects[i].body != size) continue;
        size_t copy = 0;
        if (copies > 1 && *path == '/')
            for (path++; *path >= '0' && *path <= '9'; path++) copy = (copy * 10 + (*path - '0')) % copies;
        struct answer *answer = private ? &objects[i].no_store : &objects[i].storable[copy];
        c->is_last = may_close && memmem(head, end - head, last, sizeof last - 1);
        if (c->is_last) answer = &objects[i].last;
        c->out = answer->bytes;
        c->out_left = answer->length;
        count_sent(thread);
        return true;
    }
    return false;
}

/* Every WebSocket is answered as if its key were that of the example in RFC 6455, which the load generator sends. */
static void subscribe(struct connection *c, bool is_websocket) {
    static const char stream[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    static const char websocket[] = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                                    "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    c->out = is_websocket ? websocket : stream;
    c->out_left = (is_websocket ? sizeof websocket : sizeof stream) - 1;
    c->is_websocket = is_websocket;
    if (c->is_subscriber) return;
    if (subscriber_count == subscriber_room) {
        subscriber_room = subscriber_room ? 2 * subscriber_room : 1024;
        subscribers = realloc(subscribers, subscriber_room * sizeof *subscribers);
        if (!subscribers) die("realloc");
    }
    c->is_subscriber = true;
    c->place = subscriber_count;
    subscribers[subscriber_count++] = c;
}

static void let_go(struct connection *c) {
    if (c->is_subscriber) {
        subscribers[c->place] = subscribers[--subscriber_count];
        subscribers[c->place]->place = c->place;
    }
    close(c->fd);
    free(c->rest);
    free(c);
}

/* False when the connection is at its end; true when the kernel has no room for more, or nothing is left to write. */
static bool write_out(struct connection *c) {
    while (c->out_left) {
        ssize_t n = send(c->fd, c->out, c->out_left, MSG_NOSIGNAL);
        if (n < 0) return errno == EAGAIN;
        c->out += n;
        c->out_left -= n;
    }
    return true;
}

/* A text message of a WebSocket. */
static size_t write_frame(char *frame, const char *body, size_t length) {
    size_t head = length < 126 ? 2 : 4;
    frame[0] = (char)0x81;
    frame[1] = (char)(length < 126 ? length : 126);
    if (head == 4) {
        frame[2] = (char)(length >> 8);
        frame[3] = (char)length;
    }
    memcpy(frame + head, body, length);
    return head + length;
}

/* Sends an event of one line to all subscribers. One who is gone is not ended here: epoll tells of that. */
static void broadcast(const char *body, size_t length) {
    static unsigned long number;
    char event[MAX_HEAD + EVENT_OVERHEAD], frame[MAX_HEAD + EVENT_OVERHEAD], fields[64];
    int before = snprintf(fields, sizeof fields, "id: 0123456789abcdef.%lu\nevent: put\ndata: ", ++number);
    size_t event_size = snprintf(event, sizeof event, "%zx\r\n%s%.*s\n\n\r\n", before + length + 2, fields, (int)length, body);
    size_t frame_size = write_frame(frame, body, length);
    for (size_t i = 0; i < subscriber_count; i++) {
        struct connection *c = subscribers[i];
        if (c->out_left) continue;
        size_t size = c->is_websocket ? frame_size : event_size;
        c->out = c->is_websocket ? frame : event;
        c->out_left = size;
        if (!write_out(c) || c->out_left == size) c->out_left = 0;
        if (!c->out_left) continue;
        free(c->rest);
        c->rest = malloc(c->out_left);
        if (!c->rest) die("malloc");
        memcpy(c->rest, c->out, c->out_left);
        c->out = c->rest;
    }
}

/* The length of a request's body, from the field as the load generator writes it. */
static size_t body_length(const char *head, const char *end) {
    static const char name[] = "\r\nContent-Length: ";
    const char *field = memmem(head, end - head, name, sizeof name - 1);
    return field ? strtoul(field + sizeof name - 1, NULL, 10) : 0;
}

/* What a broadcaster does with a request. */
static void take_part(struct connection *c, const char *head, const char *body, size_t length) {
    static const char get[] = "GET ", upgrade[] = "\r\nUpgrade: websocket\r\n", no_content[] = "HTTP/1.1 204 No Content\r\n\r\n";
    if (strncmp(head, get, sizeof get - 1) == 0) {
        subscribe(c, memmem(head, body - head, upgrade, sizeof upgrade - 1));
        return;
    }
    broadcast(body, length);
    c->out = no_content;
    c->out_left = sizeof no_content - 1;
}

/* Answers every whole request in the buffer, one after the other, until one answer does not fit into the socket. */
static bool answer_requests(struct connection *c, int thread) {
    size_t start = 0;
    while (!c->out_left && !c->is_last) {
        char *head = c->in + start, *end = memmem(head, c->filled - start, "\r\n\r\n", 4);
        if (!end) break;
        end += 4;
        if (is_broadcaster) {
            size_t length = body_length(head, end);
            if (length > c->filled - (end - c->in)) break;
            take_part(c, head, end, length);
            end += length;
        } else if (!choose_answer(c, head, end, thread)) {
            return false;
        }
        start = end - c->in;
        if (!write_out(c)) return false;
    }
    c->filled -= start;
    if (start && c->filled) memmove(c->in, c->in + start, c->filled);
    return true;
}

/* One turn of a ready connection. A short recv has emptied the socket: with edge triggering the next bytes raise a new event. */
static bool serve(struct connection *c, int thread) {
    for (;;) {
        if (!write_out(c)) return false;
        if (!c->out_left && !answer_requests(c, thread)) return false;
        if (c->out_left) return true;
        if (c->is_last) return false;
        size_t room = MAX_HEAD - c->filled;
        if (!room) return false;
        ssize_t n = recv(c->fd, c->in + c->filled, room, 0);
        if (n == 0) return false;
        if (n < 0) return errno == EAGAIN;
        c->filled += n;
        if (!answer_requests(c, thread)) return false;
        if (c->is_last && !c->out_left) return false;
        if (c->out_left || (size_t)n < room) return true;
    }
}

static int listen_here(void) {
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd < 0) die("socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    /* Only where it is needed: a shared port would let another program in unnoticed. */
    if (threads > 1) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 4096)) die("bind");
    return fd;
}

static void accept_all(int listener, int epoll, int thread) {
    int fd, one = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        struct connection *c = malloc(sizeof *c);
        if (!c) die("malloc");
        c->fd = fd;
        c->filled = c->out_left = 0;
        c->rest = NULL;
        c->is_last = c->is_subscriber = c->is_websocket = false;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        /* A request that has come along may be the only one: then there is nothing to wait for. */
        if (may_close && !serve(c, thread)) {
            let_go(c);
            continue;
        }
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) die("epoll_ctl");
    }
}

static void *run(void *argument) {
    int thread = (int)(intptr_t)argument, listener = listen_here(), epoll = epoll_create1(0);
    struct epoll_event events[MAX_EVENTS], on_listener = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &on_listener)) die("epoll");
    for (;;) {
        int ready = epoll_wait(epoll, events, MAX_EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            struct connection *c = events[i].data.ptr;
            if (!c) {
                accept_all(listener, epoll, thread);
            } else if (!serve(c, thread)) {
                let_go(c);
            }
        }
    }
}

int main(int argc, char **argv) {
    int option;
    while ((option = getopt(argc, argv, "p:t:n:kcob")) != -1) {
        if (option == 'p') port = atoi(optarg);
        else if (option == 't') threads = atoi(optarg);
        else if (option == 'n') copies = strtoul(optarg, NULL, 10);
        else if (option == 'k') has_table = true;
        else if (option == 'c') may_close = true;
        else if (option == 'o') is_origin = true;
        else if (option == 'b') is_broadcaster = true;
        else return 2;
    }
    bool is_sized = optind < argc && argc - optind <= MAX_SIZES;
    if (!port || threads < 1 || threads > MAX_THREADS || !copies || (is_broadcaster ? optind < argc || threads > 1 : !is_sized)) {
        fprintf(stderr, "usage: floor -p PORT [-t THREADS] [-n COPIES [-k]] [-c] [-o] SIZE...\n       floor -p PORT -b\n");
        return 2;
    }
    if (has_table) allocate_table((argc - optind) * copies);
    for (; optind < argc; optind++, object_count++) {
        size_t body = strtoul(argv[optind], NULL, 10);
        if (has_table) {
            for (size_t copy = 1; copy <= copies; copy++) insert(body, copy);
            continue;
        }
        objects[object_count].body = body;
        objects[object_count].storable = malloc(copies * sizeof(struct answer));
        if (!objects[object_count].storable) die("malloc");
        for (size_t copy = 0; copy < copies; copy++) objects[object_count].storable[copy] = prebuild(body, "max-age=86400", "", 0);
        objects[object_count].no_store = prebuild(body, "no-store", "", 0);
        objects[object_count].last = prebuild(body, "max-age=86400", "Connection: close\r\n", 0);
    }
    for (int i = 1; i < threads; i++) {
        pthread_t id;
        if (pthread_create(&id, NULL, run, (void *)(intptr_t)i)) die("pthread_create");
    }
    run(NULL);
}
