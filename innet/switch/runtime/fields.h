/* Fields of more than 128 bits or of variable length. They are bytes, most significant first, and the
 * last bit of the field is the last bit of the last byte. */

#ifndef INNET_FIELDS_H
#define INNET_FIELDS_H

/* Returns an index into a header stack of `depth` headers, or `outside` if there is no such header. */
static inline u32 rt_index(u64 index, u32 depth, u32 outside)
{
    return index < depth ? (u32)index : outside;
}

static inline void rt_swap(u8 *a, u8 *b, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        u8 byte = a[i];
        a[i] = b[i];
        b[i] = byte;
    }
}

/* push_front of a stack of unions. As in BMv2, elements that leave at the back come in at the front. */
static inline void rt_push_front(void *stack, size_t bytes, u32 depth, u32 n)
{
    for (u32 i = depth; i-- > n;)
        rt_swap((u8 *)stack + i * bytes, (u8 *)stack + (i - n) * bytes, bytes);
}

/* pop_front of a stack of unions. As in BMv2, elements that leave at the front come in at the back. */
static inline void rt_pop_front(void *stack, size_t bytes, u32 depth, u32 n)
{
    for (u32 i = 0; i + n < depth; i++)
        rt_swap((u8 *)stack + i * bytes, (u8 *)stack + (i + n) * bytes, bytes);
}

/* Sets the `bytes` of a field to `width` bits that start `offset` bits into `p`. If there are more
 * bits than the field has, it gets the last of them. */
static inline void rt_load_bytes(u8 *field, u32 bytes, const u8 *p, u32 offset, u32 width)
{
    u32 end = offset + width, taken = width < 8 * bytes ? width : 8 * bytes;
    if (end % 8 == 0 && taken % 8 == 0) {
        memset(field, 0, bytes - taken / 8);
        memcpy(field + bytes - taken / 8, p + (end - taken) / 8, taken / 8);
        return;
    }
    for (u32 i = bytes; i-- > 0;) {
        u32 take = taken < 8 ? taken : 8;
        field[i] = take ? (u8)rt_bits(p, end - take, take) : 0;
        end -= take;
        taken -= take;
    }
}

/* Writes the last `width` bits of a field, `offset` bits into `p`. The field has no more bytes than
 * these bits take. */
static inline void rt_put_bytes(u8 *p, u32 offset, u32 width, const u8 *field)
{
    u32 bytes = (width + 7) / 8, first = width - (bytes ? 8 * (bytes - 1) : 0);
    if (offset % 8 == 0 && width % 8 == 0) {
        memcpy(p + offset / 8, field, bytes);
        return;
    }
    for (u32 i = 0; i < bytes; i++) {
        rt_put_bits(p, offset, i ? 8 : first, field[i]);
        offset += i ? 8 : first;
    }
}

/* Sets a field of `bits` bits to the last bits of another, with zeros in front if that is shorter. */
static inline void rt_copy_bytes(u8 *field, u32 bits, const u8 *from, u32 from_bytes)
{
    u32 bytes = (bits + 7) / 8, taken = from_bytes < bytes ? from_bytes : bytes;
    memmove(field + bytes - taken, from + from_bytes - taken, taken);
    memset(field, 0, bytes - taken);
    if (bits % 8)
        field[0] &= (u8)((1u << bits % 8) - 1);
}

/* Sets a field of more than 128 bits to a number. */
static inline void rt_set_bytes(u8 *field, u32 bytes, u128 value)
{
    for (u32 i = bytes; i-- > 0; value >>= 8)
        field[i] = (u8)value;
}

static inline void rt_mask_bytes(u8 *field, const u8 *mask, u32 bytes)
{
    for (u32 i = 0; i < bytes; i++)
        field[i] &= mask[i];
}

/* Returns whether a field has these bits where the mask has ones. */
static inline bool rt_match_bytes(const u8 *field, const u8 *bits, const u8 *mask, u32 bytes)
{
    u8 differing = 0;
    for (u32 i = 0; i < bytes; i++)
        differing |= (field[i] ^ bits[i]) & mask[i];
    return !differing;
}

/* Returns a number below, at or above 0 if a is less than, equal to or greater than b. */
static inline int rt_compare_bytes(const u8 *a, u32 a_bytes, const u8 *b, u32 b_bytes)
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
