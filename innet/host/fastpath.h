// A worker's compiled code: what its parts have in common.
//
// innet/host/fastpath.py says what they do, and which numpy code they agree with, bit for bit. Where the
// fields of the header are, AT_JOB and so on, comes from there as well.

#include "words.h"

// What every packet of a link has in common.
struct format {
    size_t bytes, front, lanes;  // of a packet, in front of its header, behind it
    size_t words;                // that the check is of
    const uint64_t *weights;
    uint64_t base;               // what the sender's address adds to the check's sum
    size_t checked, places[2], sizes[2];  // bytes in front that tell the sender, if any
    uint8_t sender[8];
};

// The arrays of a Window (window.py), an element for each slot.
struct window {
    int64_t slots, first_slot;
    int64_t *sequence, *chunk, *attempts;
    double *sent_at;
    int8_t *state;
    uint8_t *suspect;
    int64_t *scratch;
    uint16_t job, epoch;
};

enum { DONE, DUE, FLYING, HAD };

// What makes floats to the integers that an exchange sums, a row at a time before it is sent, and its result
// to floats, as it comes.
struct scaling {
    int64_t lanes;
    const float *values, *up;      // rows, and by what they are multiplied
    const uint8_t *fit;            // a row that is not is sent as zeros
    int32_t *integers;
    int64_t ready;                 // so many rows of them are made
    const float *down;             // by what sums are multiplied,
    int64_t mean;                  // when they have been divided by how many contributed, if it is a mean
    float *results;
    uint8_t *done;                 // rows of the result that are made
};

// What an exchange sums, and its result, an element for each chunk, or a row of `lanes`.
struct vectors {
    int64_t chunks;
    const uint32_t *own;
    const uint16_t *own_flags;
    uint32_t *sums;
    uint16_t *flags;
    uint8_t *counts;
    uint32_t *members;
    struct scaling *scaling;       // or NULL
};

struct arrivals {
    int64_t packets, corrupted;
};

struct taken {
    int64_t others;         // replies to this worker that are not results; with any, nothing is done
    int64_t finished, lost;
    double oldest, newest;  // when chunks were sent, by results that are fit to tell
    int64_t *chunks;        // those that are finished
};

struct sent {
    int64_t packets, repetitions, waiting;
};

// The way to the switch, and time. What fails returns an errno.
struct network {
    void *context;
    double (*now)(void *);                          // seconds
    void (*pause)(void *, double seconds);
    int (*wait)(void *, double seconds);            // until packets are there; 1 if the bell has rung
    int (*send)(void *, const uint8_t *packets, size_t count, size_t bytes);
    int (*receive)(void *, uint8_t *buffer, size_t room, const struct format *format,
                   struct arrivals *arrivals);      // EAGAIN if nothing is there
};

// A network's context, where it is a UDP socket.
struct udp_socket {
    int descriptor, bell;  // the bell's is negative if there is none
    int segmenting;        // whether the kernel cuts one buffer into packets
};

void innet_take(struct window *window, const struct format *format, struct vectors *vectors,
                const uint8_t *packets, size_t count, double now, double quiet_until,
                double too_soon, double reordering, struct taken *taken);
void innet_transmit(struct window *window, const struct format *format,
                    const struct vectors *vectors, int64_t most, double now, uint8_t *packets,
                    struct sent *sent);
void innet_make_ready(struct scaling *scaling, int64_t rows);
