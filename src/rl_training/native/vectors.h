/* Vectors of floats, and functions of them. A file that wants other than eight floats defines WIDE before. */

#ifndef VECTORS_H
#define VECTORS_H

#include <stdint.h>
#include <string.h>

#define JOIN(name, kind) name##_##kind
#define EXPANDED(name, kind) JOIN(name, kind)
#define OF_KIND(name) EXPANDED(name, KIND)
#define INLINE static inline __attribute__((always_inline))

#ifndef WIDE
#define WIDE 8 /* floats in a vector */
#endif

typedef float vec __attribute__((vector_size(4 * WIDE), aligned(4)));
typedef int32_t ivec __attribute__((vector_size(4 * WIDE), aligned(4)));

INLINE vec load(const float *from) { return *(const vec *)from; }
INLINE void store(float *to, vec value) { *(vec *)to = value; }
INLINE vec spread(float v) {
#if WIDE == 16
    return (vec){v, v, v, v, v, v, v, v, v, v, v, v, v, v, v, v};
#else
    return (vec){v, v, v, v, v, v, v, v};
#endif
}

INLINE vec pick(ivec where, vec yes, vec no) { return (vec)(((ivec)yes & where) | ((ivec)no & ~where)); }

/* exp(x) for x from -80 to 80: 2^n exp(r) with |r| at most ln(2) / 2, by a series. */
INLINE vec vector_exp(vec x) {
    vec n = (x * 1.44269504088896341f + 12582912.0f) - 12582912.0f; /* rounded to a whole number */
    vec r = (x - n * 0.693145751953125f) - n * 1.42860682030941723e-6f;
    vec sum = spread(1.0f / 5040.0f);
    sum = sum * r + 1.0f / 720.0f;
    sum = sum * r + 1.0f / 120.0f;
    sum = sum * r + 1.0f / 24.0f;
    sum = sum * r + 1.0f / 6.0f;
    sum = sum * r + 0.5f;
    sum = sum * r + 1.0f;
    sum = sum * r + 1.0f;
    return (vec)((ivec)sum + (__builtin_convertvector(n, ivec) << 23));
}

/* tanh(x): by its series near zero, where 1 - 2 / (exp(2x) + 1) would cancel; what is not a number stays so. */
INLINE vec vector_tanh(vec x) {
    vec squared = x * x, near = spread(-929569.0f / 638512875.0f);
    near = near * squared + 21844.0f / 6081075.0f;
    near = near * squared - 1382.0f / 155925.0f;
    near = near * squared + 62.0f / 2835.0f;
    near = near * squared - 17.0f / 315.0f;
    near = near * squared + 2.0f / 15.0f;
    near = near * squared - 1.0f / 3.0f;
    near = near * squared * x + x;
    vec bounded = pick(x > 10.0f, spread(10.0f), pick(x < -10.0f, spread(-10.0f), x));
    vec far = 1.0f - 2.0f / (vector_exp(bounded + bounded) + 1.0f);
    return pick((x > 0.5f) | (x < -0.5f), far, pick(x != x, x, near));
}

#endif
