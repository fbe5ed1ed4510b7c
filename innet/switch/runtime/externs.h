/* v1model's externs: meters, hashes, random numbers, the program's log, action profiles. */

#ifndef INNET_EXTERNS_H
#define INNET_EXTERNS_H

/* One component of a table's key. */
struct span { u32 first, bytes; };

/* The generated program's description of its meters and its range matches. */
struct layout {
    u32 meters;
    const size_t *meter_size;
    const u32 *span_count; /* of each table */
    const struct span *const *spans;
};
extern const struct layout layout;

/* One rate of a meter, in packets or bytes. Tokens are counted from the switch's start rather than
 * from the last packet, so that rounding errors do not add up. */
struct rate {
    double per_us;
    u64 burst, tokens, given;
};

/* A meter of two rates and three colours. Until it is configured it marks everything green. */
struct meter {
    bool configured;
    struct rate committed, peak;
};
_Static_assert(sizeof(struct meter) <= METER_BYTES, "as in innet/switch/constants.py");

enum colour { GREEN, YELLOW, RED };

/* A meter's configuration. Rates are per second. */
struct meter_config { u64 committed_rate, committed_burst, peak_rate, peak_burst; };

/* The state that externs keep from packet to packet. */
struct externs {
    struct meter **meters;
    u64 random;
    u64 failed_assertions;
    int log_file; /* log_msg writes to it, unless it is -1 */
};

/* Called by the program. */
i64 rt_meter(struct sw *sw, u32 meter, u64 index, u32 input); /* -1 outside of the array */
u32 rt_direct_meter(struct sw *sw, struct entry *entry, u32 input);
u64 rt_random(struct sw *sw);
u64 rt_random_between(struct sw *sw, u64 low, u64 high);
/* A value for the log: at most 128 bits, or `count` 64-bit words, least significant first. */
struct logged {
    u128 bits;
    bool is_signed;
    u32 count;
    const u64 *words;
};
bool rt_logging(struct sw *sw);
void rt_log(struct sw *sw, const char *const *parts, const struct logged *values, u32 count);
void rt_assertion_failed(struct sw *sw, const char *what);

u64 rt_hash_crc16(const u8 *p, u32 bytes);
u64 rt_hash_crc32(const u8 *p, u32 bytes);
u64 rt_hash_crcCCITT(const u8 *p, u32 bytes);
u64 rt_hash_crc8_custom(const u8 *p, u32 bytes);
u64 rt_hash_crc16_custom(const u8 *p, u32 bytes);
u64 rt_hash_crc32_custom(const u8 *p, u32 bytes);
u64 rt_hash_crc64_custom(const u8 *p, u32 bytes);
u64 rt_hash_csum16(const u8 *p, u32 bytes);
u64 rt_hash_cksum16(const u8 *p, u32 bytes);
u64 rt_hash_xor16(const u8 *p, u32 bytes);
u64 rt_hash_xor32(const u8 *p, u32 bytes);
u64 rt_hash_identity(const u8 *p, u32 bytes);
u64 rt_hash_xxh64(const u8 *p, u32 bytes);

#endif
