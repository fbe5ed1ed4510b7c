/* v1model's externs: meters, hashes, random numbers, the program's log, action profiles. */

#ifndef INNET_EXTERNS_H
#define INNET_EXTERNS_H

/* One rate of a meter, in packets or bytes. Tokens are counted from the switch's start rather than
 * from the last packet, so that rounding errors do not add up. */
struct rate {
    double per_us;
    uint64_t burst, tokens, given;
};

/* A meter of two rates and three colours. Until it is configured it marks everything green. */
struct meter {
    bool configured;
    struct rate committed, peak;
};
_Static_assert(sizeof(struct meter) <= METER_BYTES, "as in innet/switch/constants.py");

enum colour { GREEN, YELLOW, RED };

/* A meter's configuration. Rates are per second. */
struct meter_config { uint64_t committed_rate, committed_burst, peak_rate, peak_burst; };

/* The state that externs keep from packet to packet. */
struct externs {
    struct meter **meters;
    uint64_t random;
    uint64_t failed_assertions;
    int log_file; /* log_msg writes to it, unless it is -1 */
};

/* Called by the program. */
int64_t rt_meter(struct sw *sw, uint32_t meter, uint64_t index,
                 uint32_t input); /* -1 outside of the array */
uint32_t rt_direct_meter(struct sw *sw, struct entry *entry, uint32_t input);
uint64_t rt_random(struct sw *sw);
uint64_t rt_random_between(struct sw *sw, uint64_t low, uint64_t high);
/* A value for the log: at most 128 bits, or `count` 64-bit words, least significant first. */
struct logged {
    uint128_t bits;
    bool is_signed;
    uint32_t count;
    const uint64_t *words;
};
bool rt_logging(struct sw *sw);
void rt_log_line(struct sw *sw, const char *line, size_t bytes);
void rt_log(struct sw *sw, const char *const *parts, const struct logged *values, uint32_t count);
void rt_assertion_failed(struct sw *sw, const char *what);

uint64_t rt_hash_crc16(const uint8_t *p, uint32_t bytes);
uint64_t rt_hash_crc32(const uint8_t *p, uint32_t bytes);
uint64_t rt_hash_crcCCITT(const uint8_t *p, uint32_t bytes);
uint64_t rt_hash_crc8_custom(const uint8_t *p, uint32_t bytes);
uint64_t rt_hash_crc16_custom(const uint8_t *p, uint32_t bytes);
uint64_t rt_hash_crc32_custom(const uint8_t *p, uint32_t bytes);
uint64_t rt_hash_crc64_custom(const uint8_t *p, uint32_t bytes);
uint64_t rt_hash_csum16(const uint8_t *p, uint32_t bytes);
uint64_t rt_hash_cksum16(const uint8_t *p, uint32_t bytes);
uint64_t rt_hash_xor16(const uint8_t *p, uint32_t bytes);
uint64_t rt_hash_xor32(const uint8_t *p, uint32_t bytes);
uint64_t rt_hash_identity(const uint8_t *p, uint32_t bytes);
uint64_t rt_hash_xxh64(const uint8_t *p, uint32_t bytes);

#endif
