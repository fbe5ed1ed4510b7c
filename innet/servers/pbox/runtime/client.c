/* The worker's side. One call exchanges many chunks with many cores. Gradients are sent from the caller's
 * arrays, and parameters are received into the caller's arrays. */

#include "stream.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

/* The place of a chunk: its key, and where it lies in that key's array. */
struct piece {
    uint64_t offset; /* bytes */
    uint32_t key, bytes;
};

/* The connection to one core of a server. */
struct core_connection {
    int socket;
    uint32_t chunks;     /* all chunks of this core */
    struct piece *piece; /* by chunk */
    uint64_t *step;      /* by chunk: the number of updates in its last result */
    bool *awaited;       /* by chunk: whether a result is to come */
    /* The present exchange. It wants these chunks, in this order: so many of them, with so many
     * requests sent and results received. */
    uint32_t *queue;
    uint32_t wanted, requested, received;
    uint32_t frame_sent; /* bytes of the next request that are out */
    struct inlet in;
};

struct client {
    uint32_t cores, controls;
    struct core_connection *core;
    struct pollfd *poll;
    uint8_t kind;
    uint32_t which; /* the core or the control connection that an outcome is about */
    uint32_t why;   /* the reason of a refusal */
    double rate;
    const uint8_t *const *from;
    uint8_t *const *into;
    uint64_t bytes;
};

void client_free(struct client *client)
{
    for (uint32_t i = 0; client->core && i < client->cores; i++) {
        struct core_connection *core = client->core + i;
        free(core->piece);
        free(core->step);
        free(core->queue);
        free(core->awaited);
    }
    free(client->core);
    free(client->poll);
    free(client);
}

/* The control connections are watched too, since a server reports errors on them. */
struct client *client_new(uint32_t cores, uint32_t controls, const int *control)
{
    struct client *client = calloc(1, sizeof *client);
    if (!client)
        return NULL;
    client->cores = cores;
    client->controls = controls;
    client->core = calloc(cores, sizeof *client->core);
    client->poll = calloc(cores + controls, sizeof *client->poll);
    if (!client->core || !client->poll) {
        client_free(client);
        return NULL;
    }
    for (uint32_t i = 0; i < controls; i++)
        client->poll[cores + i] = (struct pollfd){.fd = control[i], .events = POLLIN};
    return client;
}

bool client_set_core(struct client *client, uint32_t number, int socket, uint32_t chunks,
                     const struct piece *pieces)
{
    struct core_connection *core = client->core + number;
    *core = (struct core_connection){.socket = socket, .chunks = chunks};
    core->piece = malloc((chunks + 1) * sizeof *pieces);
    core->step = calloc(chunks + 1, sizeof *core->step);
    core->queue = calloc(chunks + 1, sizeof *core->queue);
    core->awaited = calloc(chunks + 1, sizeof *core->awaited);
    if (!core->piece || !core->step || !core->queue || !core->awaited)
        return false;
    memcpy(core->piece, pieces, chunks * sizeof *pieces);
    return true;
}

/* Begins an exchange of all chunks of the wanted keys. `from` and `into` are the keys' arrays and must
 * stay valid until the exchange is done. `from` is not used for a PULL, nor `into` for an INIT. */
void client_begin(struct client *client, uint8_t kind, const uint8_t *const *from,
                  uint8_t *const *into, const bool *wanted, double rate)
{
    client->kind = kind;
    client->from = from;
    client->into = into;
    client->rate = rate;
    for (uint32_t i = 0; i < client->cores; i++) {
        struct core_connection *core = client->core + i;
        core->wanted = core->requested = core->received = core->frame_sent = 0;
        for (uint32_t chunk = 0; chunk < core->chunks; chunk++)
            if (wanted[core->piece[chunk].key])
                core->queue[core->wanted++] = chunk;
    }
}

static enum outcome send_requests(struct client *client, struct core_connection *core)
{
    struct frame frames[BATCH];
    while (core->requested < core->wanted) {
        uint32_t left = core->wanted - core->requested, count = left < BATCH ? left : BATCH;
        uint32_t complete;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t chunk = core->queue[core->requested + i];
            const struct piece *piece = core->piece + chunk;
            frames[i].header = (struct header){
                .magic = MAGIC,
                .kind = client->kind,
                .chunk = chunk,
                .bytes = client->kind == KIND_PULL ? 0 : piece->bytes,
                .step = core->step[chunk],
                .rate = client->rate,
            };
            frames[i].payload =
                client->kind == KIND_PULL ? NULL : client->from[piece->key] + piece->offset;
            core->awaited[chunk] = true;
        }
        enum moved moved =
            send_frames(core->socket, frames, count, &core->frame_sent, &complete, &client->bytes);
        core->requested += complete;
        if (moved == CLOSED)
            return OUTCOME_LOST;
        if (moved == BLOCKED)
            break;
    }
    return OUTCOME_AGAIN;
}

static enum outcome begin_result(struct client *client, struct core_connection *core)
{
    const struct header *h = &core->in.now;
    if (h->magic == MAGIC && h->kind == KIND_REFUSAL) {
        client->why = h->chunk;
        return OUTCOME_REFUSED;
    }
    if (h->magic != MAGIC || h->kind != KIND_RESULT || h->chunk >= core->chunks
        || !core->awaited[h->chunk])
        return OUTCOME_CONFUSED;
    const struct piece *piece = core->piece + h->chunk;
    if (h->bytes != (client->kind == KIND_INIT ? 0 : piece->bytes))
        return OUTCOME_CONFUSED;
    core->in.into = h->bytes ? client->into[piece->key] + piece->offset : NULL;
    core->in.left = h->bytes;
    return OUTCOME_AGAIN;
}

static enum outcome receive_results(struct client *client, struct core_connection *core)
{
    for (;;) {
        enum moved moved = receive(core->socket, &core->in, &client->bytes);
        if (moved != MOVED)
            return moved == CLOSED ? OUTCOME_LOST : OUTCOME_AGAIN;
        while (core->in.left == 0) {
            if (core->in.busy) {
                core->in.busy = false;
                core->awaited[core->in.now.chunk] = false;
                core->step[core->in.now.chunk] = core->in.now.step;
                core->received++;
            }
            if (core->in.have < sizeof core->in.next)
                break;
            core->in.now = core->in.next;
            core->in.have = 0;
            enum outcome outcome = begin_result(client, core);
            if (outcome != OUTCOME_AGAIN)
                return outcome;
            core->in.busy = true;
        }
        if (core->received == core->wanted)
            return OUTCOME_AGAIN;
    }
}

static enum outcome exchange_once(struct client *client, int milliseconds)
{
    bool done = true;
    for (uint32_t i = 0; i < client->cores; i++) {
        struct core_connection *core = client->core + i;
        done &= core->received == core->wanted;
        client->poll[i] = (struct pollfd){
            .fd = core->socket, .events = POLLIN | (core->requested < core->wanted ? POLLOUT : 0)};
    }
    if (done)
        return OUTCOME_DONE;
    int count = poll(client->poll, client->cores + client->controls, milliseconds);
    for (uint32_t i = 0; count > 0 && i < client->controls; i++)
        if (client->poll[client->cores + i].revents) {
            client->which = i;
            return OUTCOME_TOLD;
        }
    for (uint32_t i = 0; count > 0 && i < client->cores; i++) {
        enum outcome outcome = OUTCOME_AGAIN;
        client->which = i;
        if (client->poll[i].revents & POLLOUT)
            outcome = send_requests(client, client->core + i);
        if (client->poll[i].revents & (POLLIN | POLLHUP | POLLERR)) {
            enum outcome found = receive_results(client, client->core + i);
            if (found != OUTCOME_AGAIN) /* a refusal says more than a broken pipe */
                outcome = found;
        }
        if (outcome != OUTCOME_AGAIN)
            return outcome;
    }
    return OUTCOME_AGAIN;
}

/* Goes on with an exchange. Returns when it is DONE, when nothing has moved for `milliseconds`, or after
 * a bounded number of rounds, so that Python can look for signals. Outcomes other than DONE and AGAIN are
 * about client_which(). */
int client_exchange(struct client *client, int milliseconds)
{
    for (uint32_t i = 0; i < 4096; i++) {
        uint64_t before = client->bytes;
        enum outcome outcome = exchange_once(client, milliseconds);
        if (outcome != OUTCOME_AGAIN || client->bytes == before)
            return (int)outcome;
    }
    return OUTCOME_AGAIN;
}

uint64_t client_bytes(const struct client *client) { return client->bytes; }

uint32_t client_which(const struct client *client) { return client->which; }

uint32_t client_why(const struct client *client) { return client->why; }
