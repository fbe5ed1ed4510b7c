/* A stretch of several UDP cables in which every packet takes the same time. So packets leave in the
 * order in which they came, and one queue is enough for all cables and directions. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

enum { BATCH = 16, FRAME = 1536, QUEUE = 1 << 14, MOST_ENDS = 256, BUFFER = 4 << 20 };

struct packet {
    int64_t due;
    int out;
    uint32_t bytes;
    uint8_t frame[FRAME];
};

static struct packet *queue;
static uint32_t head, tail;

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static struct sockaddr_in at(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int end_of_cable(uint16_t own, uint16_t peer)
{
    struct sockaddr_in here = at(own), there = at(peer);
    int made = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), size = BUFFER;
    if (made < 0 || bind(made, (struct sockaddr *)&here, sizeof here)
        || connect(made, (struct sockaddr *)&there, sizeof there)) {
        perror("a cable's end");
        exit(1);
    }
    setsockopt(made, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    return made;
}

/* Queue up to a batch of packets that have come in. What finds no room is lost, as in any queue. */
static void take(int in, int out, int64_t delay)
{
    struct mmsghdr messages[BATCH] = {0};
    struct iovec vectors[BATCH];
    uint32_t room = QUEUE - (tail - head), most = room < BATCH ? room : BATCH;
    for (uint32_t i = 0; i < most; i++) {
        vectors[i] = (struct iovec){queue[(tail + i) % QUEUE].frame, FRAME};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &vectors[i], .msg_iovlen = 1};
    }
    int64_t due = now() + delay;
    int count = recvmmsg(in, messages, most, MSG_DONTWAIT, NULL);
    for (int i = 0; i < count; i++, tail++) {
        struct packet *packet = &queue[tail % QUEUE];
        packet->due = due, packet->out = out, packet->bytes = messages[i].msg_len;
    }
}

static void send_due(void)
{
    for (int64_t time = now(); head != tail && queue[head % QUEUE].due <= time; head++) {
        const struct packet *packet = &queue[head % QUEUE];
        send(packet->out, packet->frame, packet->bytes, MSG_DONTWAIT);
    }
}

/* Carry packets for ever. Four ports for each cable: our end and the switch's, our end and the
 * worker's. */
void delay_line(const uint16_t *ports, uint32_t cables, int64_t delay)
{
    struct pollfd ends[MOST_ENDS];
    uint32_t count = 2 * cables;
    queue = calloc(QUEUE, sizeof *queue);
    if (!queue || count > MOST_ENDS)
        exit(1);
    for (uint32_t i = 0; i < count; i++)
        ends[i] =
            (struct pollfd){.fd = end_of_cable(ports[2 * i], ports[2 * i + 1]), .events = POLLIN};
    puts("line ready");
    fflush(stdout);
    for (;;) {
        int64_t left = head == tail ? -1 : queue[head % QUEUE].due - now();
        struct timespec wait = {left > 0 ? left / 1000000000 : 0, left > 0 ? left % 1000000000 : 0};
        ppoll(ends, count, left == -1 ? NULL : &wait, NULL);
        for (uint32_t i = 0; i < count; i++)
            if (ends[i].revents)
                take(ends[i].fd, ends[i ^ 1].fd, delay);
        send_due();
    }
}
