/* BMv2's hashes, under its names. All take whole bytes. */

#include "runtime.h"

/* A step of a CRC that takes the lowest bit first. The remainder moves right. */
static uint64_t right_step(uint64_t remainder, uint64_t reflected_polynomial)
{
    for (int bit = 0; bit < 8; bit++)
        remainder = remainder & 1 ? remainder >> 1 ^ reflected_polynomial : remainder >> 1;
    return remainder;
}

/* A step of a CRC that takes the highest bit first. The remainder is at the upper end of a word. */
static uint64_t left_step(uint64_t remainder, uint64_t polynomial)
{
    for (int bit = 0; bit < 8; bit++)
        remainder = remainder >> 63 ? remainder << 1 ^ polynomial : remainder << 1;
    return remainder;
}

static uint64_t crc16_table[256], crc32_table[256], crc64_table[256], crc8_table[256],
    ccitt_table[256];

__attribute__((constructor)) static void make_tables(void)
{
    for (uint64_t byte = 0; byte < 256; byte++) {
        crc16_table[byte] = right_step(byte, 0xa001);
        crc32_table[byte] = right_step(byte, 0xedb88320);
        crc64_table[byte] = right_step(byte, 0xd800000000000000);
        crc8_table[byte] = left_step(byte << 56, (uint64_t)0x07 << 56);
        ccitt_table[byte] = left_step(byte << 56, (uint64_t)0x1021 << 48);
    }
}

static uint64_t crc_right(const uint64_t *table, uint64_t remainder, const uint8_t *p,
                          uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        remainder = table[(remainder ^ p[i]) & 0xff] ^ remainder >> 8;
    return remainder;
}

static uint64_t crc_left(const uint64_t *table, uint64_t remainder, const uint8_t *p,
                         uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        remainder = table[remainder >> 56 ^ p[i]] ^ remainder << 8;
    return remainder;
}

uint64_t rt_hash_crc16(const uint8_t *p, uint32_t bytes)
{
    return crc_right(crc16_table, 0, p, bytes);
}
uint64_t rt_hash_crc32(const uint8_t *p, uint32_t bytes)
{
    return crc_right(crc32_table, 0xffffffff, p, bytes) ^ 0xffffffff;
}
uint64_t rt_hash_crcCCITT(const uint8_t *p, uint32_t bytes)
{
    return crc_left(ccitt_table, (uint64_t)0xffff << 48, p, bytes) >> 48;
}

/* The configurable CRCs in their initial configuration. P4Runtime cannot configure them. */
uint64_t rt_hash_crc8_custom(const uint8_t *p, uint32_t bytes)
{
    return crc_left(crc8_table, 0, p, bytes) >> 56;
}
uint64_t rt_hash_crc16_custom(const uint8_t *p, uint32_t bytes) { return rt_hash_crc16(p, bytes); }
uint64_t rt_hash_crc32_custom(const uint8_t *p, uint32_t bytes) { return rt_hash_crc32(p, bytes); }
uint64_t rt_hash_crc64_custom(const uint8_t *p, uint32_t bytes)
{
    return crc_right(crc64_table, 0, p, bytes);
}

uint64_t rt_hash_csum16(const uint8_t *p, uint32_t bytes) { return rt_csum16(p, bytes); }
uint64_t rt_hash_cksum16(const uint8_t *p, uint32_t bytes) { return rt_csum16(p, bytes); }

/* Returns the exclusive or of words of `size` bytes, most significant first. The last word is padded
 * with zeros. */
static uint64_t exclusive_or(const uint8_t *p, uint32_t bytes, uint32_t size)
{
    uint64_t result = 0;
    for (uint32_t i = 0; i < bytes; i++)
        result ^= (uint64_t)p[i] << 8 * (size - 1 - i % size);
    return result;
}

uint64_t rt_hash_xor16(const uint8_t *p, uint32_t bytes) { return exclusive_or(p, bytes, 2); }
uint64_t rt_hash_xor32(const uint8_t *p, uint32_t bytes) { return exclusive_or(p, bytes, 4); }

/* Returns the first 64 bits, or all bits if there are fewer. */
uint64_t rt_hash_identity(const uint8_t *p, uint32_t bytes)
{
    uint64_t result = 0;
    for (uint32_t i = 0; i < bytes && i < 8; i++)
        result = result << 8 | p[i];
    return result;
}

/* XXH64 with seed 0, by its specification. */
static const uint64_t PRIMES[] = {
    0x9e3779b185ebca87, 0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9,
    0x85ebca77c2b2ae63, 0x27d4eb2f165667c5,
};

static uint64_t rotate(uint64_t x, uint32_t by) { return x << by | x >> (64 - by); }

static uint64_t word_at(const uint8_t *p, uint32_t bytes)
{
    uint64_t word = 0;
    memcpy(&word, p, bytes);
    return word;
}

static uint64_t xxh_round(uint64_t lane, uint64_t word)
{
    return rotate(lane + word * PRIMES[1], 31) * PRIMES[0];
}

uint64_t rt_hash_xxh64(const uint8_t *p, uint32_t bytes)
{
    uint64_t hash = PRIMES[4];
    uint32_t i = 0;
    if (bytes >= 32) {
        uint64_t lane[4] = {PRIMES[0] + PRIMES[1], PRIMES[1], 0, -PRIMES[0]};
        for (; i + 32 <= bytes; i += 32)
            for (uint32_t l = 0; l < 4; l++)
                lane[l] = xxh_round(lane[l], word_at(p + i + 8 * l, 8));
        hash = rotate(lane[0], 1) + rotate(lane[1], 7) + rotate(lane[2], 12) + rotate(lane[3], 18);
        for (uint32_t l = 0; l < 4; l++)
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
