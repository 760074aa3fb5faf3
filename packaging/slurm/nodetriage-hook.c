/* Asks the node's agent whether a job may start (prolog), what is left of it (epilog), or how the node is (health).
 *
 *     nodetriage-hook [-d RUN_DIR] prolog|epilog|health
 *
 * Prints the agent's one line and exits 0 or 1. Without an answer before the deadline, which the agent writes into
 * RUN_DIR/hooks ([hooks] in agent.toml), it exits 0: only a critical fault refuses a job. It logs that (syslog, facility
 * daemon) and notes it in RUN_DIR/unanswered, which the agent reports when it is back. The hook waits for the agent no
 * longer than the deadline, and for anything else a quarter of a second more. It takes nothing from a user: slurmd's
 * own environment, cut and escaped, is all that it passes on.
 *
 * Build: cc -O2 -Wall -Wextra -o nodetriage-hook nodetriage-hook.c      Why C: docs/decisions/0060-the-hook-is-in-c.md
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

enum { GRACE_MS = 250, STALLED_MS = 2000, LOCK_MS = 100, NOTES_LIMIT = 64 << 10, VALUE_LIMIT = 200 };

static const char *const FACTS[] = {
    "SLURM_JOB_ID",          "SLURM_JOB_UID",       "SLURM_JOB_PARTITION",    "SLURM_JOB_GPUS",
    "SLURM_ARRAY_JOB_ID",    "SLURM_ARRAY_TASK_ID", "SLURM_JOB_RESTART_COUNT", "SLURM_JOB_START_TIME",
    "SLURM_JOB_EXIT_CODE",
};

static const char *run_dir = "/run/nodetriage";

struct text { char data[8192]; size_t used; };

static void add(struct text *t, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(t->data + t->used, sizeof t->data - t->used, format, arguments);
    va_end(arguments);
    if (more > 0)
        t->used += (size_t)more < sizeof t->data - t->used ? (size_t)more : sizeof t->data - t->used - 1;
}

/* "name": "value", as JSON; the value cut, and everything but plain ASCII escaped. */
static void add_fact(struct text *t, const char *name, const char *value)
{
    add(t, ", \"%s\": \"", name);
    for (size_t i = 0; value[i] && i < VALUE_LIMIT; i++) {
        unsigned char c = (unsigned char)value[i];
        if (c < 0x20 || c > 0x7e || c == '"' || c == '\\')
            add(t, "\\u%04x", c);
        else
            add(t, "%c", c);
    }
    add(t, "\"");
}

static long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000L + now.tv_nsec / 1000000L;
}

/* What the agent wrote for its hooks: a line deadline_ms=NUMBER. */
static long deadline(void)
{
    char path[256], line[64];
    long number, deadline_ms = 1000;
    snprintf(path, sizeof path, "%s/hooks", run_dir);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "deadline_ms=%ld", &number) == 1 && number >= 10 && number <= 60000)
            deadline_ms = number;
    }
    if (file)
        fclose(file);
    return deadline_ms;
}

static void too_late(int number)
{
    (void)number;
    _exit(0);
}

/* A signal at `ms` from now, whatever call we are in by then: the deadline holds even where a file system does not. */
static void no_later_than(long ms)
{
    struct itimerval timer = {.it_value = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000}};
    signal(SIGALRM, too_late);
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* 0 and the agent's line in `answer`, or -1 and errno. */
static int ask(const struct text *request, struct text *answer, long until_ms)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred peer;
    socklen_t size = sizeof peer;
    int line = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/agent.sock", run_dir);
    for (int step = 0;; step++) {
        long left = until_ms - now_ms();
        struct timeval limit = {.tv_sec = left / 1000, .tv_usec = left % 1000 * 1000};
        if (left <= 0)
            return errno = ETIMEDOUT, -1;
        setsockopt(line, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit); /* unix(7): holds for connect too */
        setsockopt(line, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        if (step == 0) {
            if (connect(line, (struct sockaddr *)&address, sizeof address))
                return -1;
            if (getsockopt(line, SOL_SOCKET, SO_PEERCRED, &peer, &size) || (peer.uid && peer.uid != geteuid()))
                return errno = EACCES, -1; /* whoever listens there is not our agent */
            if (send(line, request->data, request->used, MSG_NOSIGNAL) != (ssize_t)request->used)
                return -1;
            continue;
        }
        ssize_t got = recv(line, answer->data + answer->used, sizeof answer->data - 1 - answer->used, 0);
        if (got <= 0)
            return errno = got ? errno : EPIPE, -1;
        answer->used += (size_t)got;
        char *end = memchr(answer->data, '\n', answer->used);
        if (end)
            return *end = 0, 0;
        if (answer->used >= sizeof answer->data - 1)
            return errno = EMSGSIZE, -1;
    }
}

/* One line for the agent to find. It removes the file under the same lock, so nothing is written to a removed one.
 * Whoever holds the lock does so for microseconds, but may lose the processor meanwhile, where all wait for it. */
static void note(const struct text *line, long until_ms)
{
    char path[256];
    struct stat file, named;
    snprintf(path, sizeof path, "%s/unanswered", run_dir);
    mkdir(run_dir, 0755);
    do {
        int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
            return;
        int ours = !flock(fd, LOCK_EX | LOCK_NB) && !fstat(fd, &file) && !stat(path, &named)
                   && file.st_ino == named.st_ino;
        int full = ours && (!S_ISREG(file.st_mode) || file.st_size > NOTES_LIMIT);
        if (ours && !full && write(fd, line->data, line->used) < 0)
            syslog(LOG_WARNING, "%s: %m", path);
        close(fd);
        if (ours)
            return;
        usleep(1000);
    } while (now_ms() < until_ms);
}

int main(int argc, char **argv)
{
    struct text request = {.used = 0}, answer = {.used = 0}, unanswered = {.used = 0};
    int option, wrong = 0;
    while ((option = getopt(argc, argv, "+d:")) != -1) {
        if (option == 'd')
            run_dir = optarg;
        else
            wrong = 1;
    }
    const char *hook = !wrong && argc == optind + 1 ? argv[optind] : "";
    if (strcmp(hook, "prolog") && strcmp(hook, "epilog") && strcmp(hook, "health")) {
        fprintf(stderr, "usage: nodetriage-hook [-d RUN_DIR] prolog|epilog|health\n");
        return 0; /* a mistyped line in a prolog says nothing of the node, and must not drain it */
    }
    no_later_than(1000 + GRACE_MS); /* until the deadline is read */
    long deadline_ms = deadline();
    no_later_than(deadline_ms + STALLED_MS); /* ask() keeps the deadline by itself */

    add(&request, "{\"ask\": \"%s\"", hook);
    for (size_t i = 0; i < sizeof FACTS / sizeof *FACTS; i++)
        if (getenv(FACTS[i]))
            add_fact(&request, FACTS[i], getenv(FACTS[i]));
    add(&request, "}\n");
    long until_ms = now_ms() + deadline_ms;
    if (!ask(&request, &answer, until_ms) && strspn(answer.data, "01") == 1 && answer.data[1] == ' ') {
        puts(answer.data + 2);
        return answer.data[0] - '0';
    }

    int failed = errno;
    if (until_ms < now_ms()) /* by much, perhaps: where the node is too busy for the agent, it is for us as well */
        until_ms = now_ms();
    no_later_than(until_ms - now_ms() + GRACE_MS);
    const char *why = answer.used && !strchr("01", answer.data[0]) ? "the answer makes no sense" : strerror(failed);
    const char *job = getenv("SLURM_JOB_ID");
    if (failed == EAGAIN || failed == ETIMEDOUT)
        why = "no answer in time";
    openlog("nodetriage-hook", LOG_PID, LOG_DAEMON);
    syslog(LOG_WARNING, "%s of job %s: %s: let in", hook, job ? job : "-", why);
    add(&unanswered, "{\"hook\": \"%s\", \"at\": %ld", hook, (long)time(NULL));
    add_fact(&unanswered, "why", why);
    add_fact(&unanswered, "job", job ? job : "");
    add(&unanswered, "}\n");
    note(&unanswered, until_ms + LOCK_MS);
    printf("nodetriage: the health of this node is not known (agent: %s)\n", why);
    return 0;
}
