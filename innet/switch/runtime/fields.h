/* Fields of more than 128 bits or of variable length. They are bytes, most significant first, and the
 * last bit of the field is the last bit of the last byte. */

#ifndef INNET_FIELDS_H
#define INNET_FIELDS_H

/* Returns an index into a header stack of `depth` headers, or `outside` if there is no such header. */
static inline uint32_t rt_index(uint64_t index, uint32_t depth, uint32_t outside)
{
    return index < depth ? (uint32_t)index : outside;
}

static inline void rt_swap(uint8_t *a, uint8_t *b, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        uint8_t byte = a[i];
        a[i] = b[i];
        b[i] = byte;
    }
}

/* push_front of a stack of unions. As in BMv2, elements that leave at the back come in at the front. */
static inline void rt_push_front(void *stack, size_t bytes, uint32_t depth, uint32_t n)
{
    for (uint32_t i = depth; i-- > n;)
        rt_swap((uint8_t *)stack + i * bytes, (uint8_t *)stack + (i - n) * bytes, bytes);
}

/* pop_front of a stack of unions. As in BMv2, elements that leave at the front come in at the back. */
static inline void rt_pop_front(void *stack, size_t bytes, uint32_t depth, uint32_t n)
{
    for (uint32_t i = 0; i + n < depth; i++)
        rt_swap((uint8_t *)stack + i * bytes, (uint8_t *)stack + (i + n) * bytes, bytes);
}

/* Sets the `bytes` of a field to `width` bits that start `offset` bits into `p`. If there are more
 * bits than the field has, it gets the last of them. */
static inline void rt_load_bytes(uint8_t *field, uint32_t bytes, const uint8_t *p, uint32_t offset,
                                 uint32_t width)
{
    uint32_t end = offset + width, taken = width < 8 * bytes ? width : 8 * bytes;
    if (end % 8 == 0 && taken % 8 == 0) {
        memset(field, 0, bytes - taken / 8);
        memcpy(field + bytes - taken / 8, p + (end - taken) / 8, taken / 8);
        return;
    }
    for (uint32_t i = bytes; i-- > 0;) {
        uint32_t take = taken < 8 ? taken : 8;
        field[i] = take ? (uint8_t)rt_bits(p, end - take, take) : 0;
        end -= take;
        taken -= take;
    }
}

/* Writes the last `width` bits of a field, `offset` bits into `p`. The field has no more bytes than
 * these bits take. */
static inline void rt_put_bytes(uint8_t *p, uint32_t offset, uint32_t width, const uint8_t *field)
{
    uint32_t bytes = (width + 7) / 8, first = width - (bytes ? 8 * (bytes - 1) : 0);
    if (offset % 8 == 0 && width % 8 == 0) {
        memcpy(p + offset / 8, field, bytes);
        return;
    }
    for (uint32_t i = 0; i < bytes; i++) {
        rt_put_bits(p, offset, i ? 8 : first, field[i]);
        offset += i ? 8 : first;
    }
}

/* Sets a field of `bits` bits to the last bits of another, with zeros in front if that is shorter. */
static inline void rt_copy_bytes(uint8_t *field, uint32_t bits, const uint8_t *from,
                                 uint32_t from_bytes)
{
    uint32_t bytes = (bits + 7) / 8, taken = from_bytes < bytes ? from_bytes : bytes;
    memmove(field + bytes - taken, from + from_bytes - taken, taken);
    memset(field, 0, bytes - taken);
    if (bits % 8)
        field[0] &= (uint8_t)((1u << bits % 8) - 1);
}

/* Sets a field of more than 128 bits to a number. */
static inline void rt_set_bytes(uint8_t *field, uint32_t bytes, uint128_t value)
{
    for (uint32_t i = bytes; i-- > 0; value >>= 8)
        field[i] = (uint8_t)value;
}

static inline void rt_mask_bytes(uint8_t *field, const uint8_t *mask, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        field[i] &= mask[i];
}

/* Returns whether a field has these bits where the mask has ones. */
static inline bool rt_match_bytes(const uint8_t *field, const uint8_t *bits, const uint8_t *mask,
                                  uint32_t bytes)
{
    uint8_t differing = 0;
    for (uint32_t i = 0; i < bytes; i++)
        differing |= (field[i] ^ bits[i]) & mask[i];
    return !differing;
}

/* Returns a number below, at or above 0 if a is less than, equal to or greater than b. */
static inline int rt_compare_bytes(const uint8_t *a, uint32_t a_bytes, const uint8_t *b,
                                   uint32_t b_bytes)
{
    for (; a_bytes > b_bytes; a_bytes--)
        if (*a++)
            return 1;
    for (; b_bytes > a_bytes; b_bytes--)
        if (*b++)
            return -1;
    return memcmp(a, b, a_bytes);
}

#endif
