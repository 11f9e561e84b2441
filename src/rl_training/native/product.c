/* A single product of matrices; see native/product.h and native/products.h.
 *
 * Compiled several times, for different processors, each time with another name; see native/dispatch.c.
 */

#include "product.h"
#include "products.h"

void OF_KIND(wide_product)(const Factor *a, const Factor *b, const float *start, float *out, int64_t rows,
                           int64_t inner, int64_t columns, int64_t threads) {
    Finish finish = {.start = start};
    multiply((Strided){a->data, a->row, a->column}, (Strided){b->data, b->row, b->column}, out, rows, inner, columns,
             &finish, threads);
}
