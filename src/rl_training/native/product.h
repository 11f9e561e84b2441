/* What the caller in Python and the compiled code agree on; see models/wide_product.py. */

#ifndef PRODUCT_H
#define PRODUCT_H

#include <stdint.h>

/* Of a matrix: its numbers, and how far its rows and its columns lie apart. */
typedef struct {
    const float *data;
    int64_t row, column;
} Factor;

/* Write a @ b [rows, columns] to out, where a is [rows, inner]. Each row begins with `start` [columns], unless it is
 * none. */
void wide_product(const Factor *a, const Factor *b, const float *start, float *out, int64_t rows, int64_t inner,
                  int64_t columns, int64_t threads);

/* The same for each kind of processor; see native/dispatch.c. */
#define DECLARE(kind) \
    void wide_product_##kind(const Factor *a, const Factor *b, const float *start, float *out, int64_t rows, \
                             int64_t inner, int64_t columns, int64_t threads);
DECLARE(plain)
DECLARE(avx2)
DECLARE(avx512)
#undef DECLARE

#endif
