/* BMv2's hashes, under its names. All take whole bytes. */

#include "runtime.h"

/* A step of a CRC that takes the lowest bit first. The remainder moves right. */
static u64 right_step(u64 remainder, u64 reflected_polynomial)
{
    for (int bit = 0; bit < 8; bit++)
        remainder = remainder & 1 ? remainder >> 1 ^ reflected_polynomial : remainder >> 1;
    return remainder;
}

/* A step of a CRC that takes the highest bit first. The remainder is at the upper end of a word. */
static u64 left_step(u64 remainder, u64 polynomial)
{
    for (int bit = 0; bit < 8; bit++)
        remainder = remainder >> 63 ? remainder << 1 ^ polynomial : remainder << 1;
    return remainder;
}

static u64 crc16_table[256], crc32_table[256], crc64_table[256], crc8_table[256], ccitt_table[256];

__attribute__((constructor)) static void make_tables(void)
{
    for (u64 byte = 0; byte < 256; byte++) {
        crc16_table[byte] = right_step(byte, 0xa001);
        crc32_table[byte] = right_step(byte, 0xedb88320);
        crc64_table[byte] = right_step(byte, 0xd800000000000000);
        crc8_table[byte] = left_step(byte << 56, (u64)0x07 << 56);
        ccitt_table[byte] = left_step(byte << 56, (u64)0x1021 << 48);
    }
}

static u64 crc_right(const u64 *table, u64 remainder, const u8 *p, u32 bytes)
{
    for (u32 i = 0; i < bytes; i++)
        remainder = table[(remainder ^ p[i]) & 0xff] ^ remainder >> 8;
    return remainder;
}

static u64 crc_left(const u64 *table, u64 remainder, const u8 *p, u32 bytes)
{
    for (u32 i = 0; i < bytes; i++)
        remainder = table[remainder >> 56 ^ p[i]] ^ remainder << 8;
    return remainder;
}

u64 rt_hash_crc16(const u8 *p, u32 bytes) { return crc_right(crc16_table, 0, p, bytes); }
u64 rt_hash_crc32(const u8 *p, u32 bytes)
{
    return crc_right(crc32_table, 0xffffffff, p, bytes) ^ 0xffffffff;
}
u64 rt_hash_crcCCITT(const u8 *p, u32 bytes)
{
    return crc_left(ccitt_table, (u64)0xffff << 48, p, bytes) >> 48;
}

/* The configurable CRCs in their initial configuration. P4Runtime cannot configure them. */
u64 rt_hash_crc8_custom(const u8 *p, u32 bytes) { return crc_left(crc8_table, 0, p, bytes) >> 56; }
u64 rt_hash_crc16_custom(const u8 *p, u32 bytes) { return rt_hash_crc16(p, bytes); }
u64 rt_hash_crc32_custom(const u8 *p, u32 bytes) { return rt_hash_crc32(p, bytes); }
u64 rt_hash_crc64_custom(const u8 *p, u32 bytes) { return crc_right(crc64_table, 0, p, bytes); }

u64 rt_hash_csum16(const u8 *p, u32 bytes) { return rt_csum16(p, bytes); }
u64 rt_hash_cksum16(const u8 *p, u32 bytes) { return rt_csum16(p, bytes); }

/* Words of `size` bytes, most significant first, the last one padded with zeros. */
static u64 exclusive_or(const u8 *p, u32 bytes, u32 size)
{
    u64 result = 0;
    for (u32 i = 0; i < bytes; i++)
        result ^= (u64)p[i] << 8 * (size - 1 - i % size);
    return result;
}

u64 rt_hash_xor16(const u8 *p, u32 bytes) { return exclusive_or(p, bytes, 2); }
u64 rt_hash_xor32(const u8 *p, u32 bytes) { return exclusive_or(p, bytes, 4); }

/* The first 64 bits, or all bits if there are fewer. */
u64 rt_hash_identity(const u8 *p, u32 bytes)
{
    u64 result = 0;
    for (u32 i = 0; i < bytes && i < 8; i++)
        result = result << 8 | p[i];
    return result;
}

/* XXH64 with seed 0, by its specification. */
static const u64 PRIMES[] = {
    0x9e3779b185ebca87, 0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9,
    0x85ebca77c2b2ae63, 0x27d4eb2f165667c5,
};

static u64 rotate(u64 x, u32 by) { return x << by | x >> (64 - by); }

static u64 word_at(const u8 *p, u32 bytes)
{
    u64 word = 0;
    memcpy(&word, p, bytes);
    return word;
}

static u64 xxh_round(u64 lane, u64 word) { return rotate(lane + word * PRIMES[1], 31) * PRIMES[0]; }

u64 rt_hash_xxh64(const u8 *p, u32 bytes)
{
    u64 hash = PRIMES[4];
    u32 i = 0;
    if (bytes >= 32) {
        u64 lane[4] = {PRIMES[0] + PRIMES[1], PRIMES[1], 0, -PRIMES[0]};
        for (; i + 32 <= bytes; i += 32)
            for (u32 l = 0; l < 4; l++)
                lane[l] = xxh_round(lane[l], word_at(p + i + 8 * l, 8));
        hash = rotate(lane[0], 1) + rotate(lane[1], 7) + rotate(lane[2], 12) + rotate(lane[3], 18);
        for (u32 l = 0; l < 4; l++)
            hash = (hash ^ xxh_round(0, lane[l])) * PRIMES[0] + PRIMES[3];
    }
    hash += bytes;
    for (; i + 8 <= bytes; i += 8)
        hash = rotate(hash ^ xxh_round(0, word_at(p + i, 8)), 27) * PRIMES[0] + PRIMES[3];
    if (i + 4 <= bytes) {
        hash = rotate(hash ^ word_at(p + i, 4) * PRIMES[0], 23) * PRIMES[1] + PRIMES[2];
        i += 4;
    }
    for (; i < bytes; i++)
        hash = rotate(hash ^ p[i] * PRIMES[4], 11) * PRIMES[0];
    hash = (hash ^ hash >> 33) * PRIMES[1];
    hash = (hash ^ hash >> 29) * PRIMES[2];
    return hash ^ hash >> 32;
}
