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

/* The connection to one core. */
struct line {
    int socket;
    /* Chunks: all of the line, those of this call, those sent, and those received. `sent`: bytes of
     * the next frame that are out. */
    uint32_t chunks, asked, given, taken, sent;
    struct piece *piece;
    uint64_t *step;
    uint32_t *queue; /* the chunks of this call, in order */
    bool *awaited;
    struct inlet in;
};

struct client {
    uint32_t lines, controls;
    struct line *line;
    struct pollfd *poll;
    uint8_t kind;
    uint32_t which; /* the line or the control connection that an outcome is about */
    uint32_t why;   /* the reason of a refusal */
    double rate;
    const uint8_t *const *from;
    uint8_t *const *into;
    uint64_t bytes;
};

void client_free(struct client *client)
{
    for (uint32_t i = 0; client->line && i < client->lines; i++) {
        struct line *line = client->line + i;
        free(line->piece);
        free(line->step);
        free(line->queue);
        free(line->awaited);
    }
    free(client->line);
    free(client->poll);
    free(client);
}

/* The control connections are watched too, since a server reports errors on them. */
struct client *client_new(uint32_t lines, uint32_t controls, const int *control)
{
    struct client *client = calloc(1, sizeof *client);
    if (!client)
        return NULL;
    client->lines = lines;
    client->controls = controls;
    client->line = calloc(lines, sizeof *client->line);
    client->poll = calloc(lines + controls, sizeof *client->poll);
    if (!client->line || !client->poll) {
        client_free(client);
        return NULL;
    }
    for (uint32_t i = 0; i < controls; i++)
        client->poll[lines + i] = (struct pollfd){.fd = control[i], .events = POLLIN};
    return client;
}

bool client_set_line(struct client *client, uint32_t number, int socket, uint32_t chunks,
                     const struct piece *pieces)
{
    struct line *line = client->line + number;
    *line = (struct line){.socket = socket, .chunks = chunks};
    line->piece = malloc((chunks + 1) * sizeof *pieces);
    line->step = calloc(chunks + 1, sizeof *line->step);
    line->queue = calloc(chunks + 1, sizeof *line->queue);
    line->awaited = calloc(chunks + 1, sizeof *line->awaited);
    if (!line->piece || !line->step || !line->queue || !line->awaited)
        return false;
    memcpy(line->piece, pieces, chunks * sizeof *pieces);
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
    for (uint32_t i = 0; i < client->lines; i++) {
        struct line *line = client->line + i;
        line->asked = line->given = line->taken = line->sent = 0;
        for (uint32_t chunk = 0; chunk < line->chunks; chunk++)
            if (wanted[line->piece[chunk].key])
                line->queue[line->asked++] = chunk;
    }
}

static enum outcome push(struct client *client, struct line *line)
{
    struct frame frames[BATCH];
    while (line->given < line->asked) {
        uint32_t count = line->asked - line->given < BATCH ? line->asked - line->given : BATCH,
                 complete;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t chunk = line->queue[line->given + i];
            const struct piece *piece = line->piece + chunk;
            frames[i].header = (struct header){
                .magic = MAGIC,
                .kind = client->kind,
                .chunk = chunk,
                .bytes = client->kind == KIND_PULL ? 0 : piece->bytes,
                .step = line->step[chunk],
                .rate = client->rate,
            };
            frames[i].payload =
                client->kind == KIND_PULL ? NULL : client->from[piece->key] + piece->offset;
            line->awaited[chunk] = true;
        }
        enum moved moved =
            give(line->socket, frames, count, &line->sent, &complete, &client->bytes);
        line->given += complete;
        if (moved == CLOSED)
            return OUTCOME_LOST;
        if (moved == BLOCKED)
            break;
    }
    return OUTCOME_AGAIN;
}

static enum outcome begin(struct client *client, struct line *line)
{
    const struct header *h = &line->in.now;
    if (h->magic == MAGIC && h->kind == KIND_REFUSAL) {
        client->why = h->chunk;
        return OUTCOME_REFUSED;
    }
    if (h->magic != MAGIC || h->kind != KIND_RESULT || h->chunk >= line->chunks
        || !line->awaited[h->chunk])
        return OUTCOME_CONFUSED;
    const struct piece *piece = line->piece + h->chunk;
    if (h->bytes != (client->kind == KIND_INIT ? 0 : piece->bytes))
        return OUTCOME_CONFUSED;
    line->in.into = h->bytes ? client->into[piece->key] + piece->offset : NULL;
    line->in.left = h->bytes;
    return OUTCOME_AGAIN;
}

static enum outcome pull(struct client *client, struct line *line)
{
    for (;;) {
        enum moved moved = take(line->socket, &line->in, &client->bytes);
        if (moved != MOVED)
            return moved == CLOSED ? OUTCOME_LOST : OUTCOME_AGAIN;
        while (line->in.left == 0) {
            if (line->in.busy) {
                line->in.busy = false;
                line->awaited[line->in.now.chunk] = false;
                line->step[line->in.now.chunk] = line->in.now.step;
                line->taken++;
            }
            if (line->in.have < sizeof line->in.next)
                break;
            line->in.now = line->in.next;
            line->in.have = 0;
            enum outcome outcome = begin(client, line);
            if (outcome != OUTCOME_AGAIN)
                return outcome;
            line->in.busy = true;
        }
        if (line->taken == line->asked)
            return OUTCOME_AGAIN;
    }
}

static enum outcome go_on(struct client *client, int milliseconds)
{
    bool done = true;
    for (uint32_t i = 0; i < client->lines; i++) {
        struct line *line = client->line + i;
        done &= line->taken == line->asked;
        client->poll[i] = (struct pollfd){
            .fd = line->socket, .events = POLLIN | (line->given < line->asked ? POLLOUT : 0)};
    }
    if (done)
        return OUTCOME_DONE;
    int count = poll(client->poll, client->lines + client->controls, milliseconds);
    for (uint32_t i = 0; count > 0 && i < client->controls; i++)
        if (client->poll[client->lines + i].revents) {
            client->which = i;
            return OUTCOME_TOLD;
        }
    for (uint32_t i = 0; count > 0 && i < client->lines; i++) {
        enum outcome outcome = OUTCOME_AGAIN;
        client->which = i;
        if (client->poll[i].revents & POLLOUT)
            outcome = push(client, client->line + i);
        if (client->poll[i].revents & (POLLIN | POLLHUP | POLLERR)) {
            enum outcome found = pull(client, client->line + i);
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
        enum outcome outcome = go_on(client, milliseconds);
        if (outcome != OUTCOME_AGAIN || client->bytes == before)
            return (int)outcome;
    }
    return OUTCOME_AGAIN;
}

uint64_t client_bytes(const struct client *client) { return client->bytes; }

uint32_t client_which(const struct client *client) { return client->which; }

uint32_t client_why(const struct client *client) { return client->why; }
