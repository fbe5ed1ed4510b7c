/* The reports of a core: events to Python, and refusals to a client. */

#include "state.h"

#include <poll.h>
#include <unistd.h>

void report(struct core *core, const struct job *job, enum core_event kind, uint32_t rank,
            uint32_t rule)
{
    struct event event = {.job = job->id, .kind = kind, .rank = rank, .rule = rule};
    /* Its reader does nothing else, and waits for no core. If many jobs end at once, it may be behind. */
    while (write(core->events, &event, sizeof event) < 0 && errno == EAGAIN) {
        struct pollfd room = {.fd = core->events, .events = POLLOUT};
        poll(&room, 1, -1);
    }
}

/* Sends the reason, as far as the kernel takes it at once, and hangs up. */
void refuse(struct core *core, struct connection *c, enum violation rule)
{
    core->counts.refused++;
    struct header reply = {.magic = MAGIC, .kind = KIND_REFUSAL, .chunk = rule};
    if (!c->sent) { /* not in the middle of a frame */
        ssize_t written = send(c->socket, &reply, sizeof reply, MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)written;
    }
    if (c->job && !c->job->failed) {
        c->job->failed = !c->job->asynchronous;
        report(core, c->job, EVENT_BROKE, c->rank, rule);
    }
    close_later(core, c);
}
