/* What the caller in Python and the compiled code agree on; see algorithms/compiled_mlp.py.
 *
 * Perceptrons of any size, in batches [count, width] as torch has them. Parameters and their gradient are flat vectors:
 * weight [out, in], bias [out] of each layer, from the first to the last.
 */

#ifndef MLP_H
#define MLP_H

#include <stdint.h>

typedef struct {
    int64_t layers;       /* of weights */
    const int64_t *sizes; /* [layers + 1] */
    int64_t activation;   /* between layers; 1: rectified units, 2: tanh */
    int64_t threads;
    const float *parameters;
    float *gradient;
} Mlp;

/* Write the outputs of all layers [count, width] for inputs x [count, in] to work, one after the other. */
void mlp_forward(const Mlp *net, int64_t count, const float *x, float *work);

/* Go back from the gradient [count, out] by outputs, after mlp_forward with `given` inputs x wrote to work: those of all
 * of them or, with rows [count], of some. scratch has room for 2 * count * the widest layer. With `store`, write the
 * gradient of the parameters, for which all are needed. Unless slope is none, write the gradient by the inputs from
 * `first` on to it, [count, in - first]. */
void mlp_backward(const Mlp *net, int64_t given, const float *x, const float *work, int64_t count, const int64_t *rows,
                  const float *grad, float *scratch, int64_t store, float *slope, int64_t first);

/* A perceptron in which the inputs of every layer are normalised over the batch (Ioffe 2017). Before the weight [out, in]
 * of each layer lie scale [in] and shift [in]; of the running statistics there are those of each layer. */
typedef struct {
    Mlp mlp;
    float *const *mean, *const *variance; /* [layers] of [in] */
    int64_t *const *calls;                /* [layers] of one number each */
    double momentum, eps, r_max, d_max;
    int64_t warm_up; /* calls before batches are corrected towards the running statistics */
} Normalized;

/* As mlp_forward, in work of count * (all widths but the last twice) + count * out + 4 * (all widths but the last)
 * floats; the outputs are the last of them. With `learning`, by the statistics of the batch, which the running ones
 * follow; else by those. */
void normalized_forward(const Normalized *net, int64_t count, const float *x, float *work, int64_t learning);

/* As mlp_backward, after normalized_forward with the same `learning`; with it, all rows are needed, and `store` goes
 * only with it. */
void normalized_backward(const Normalized *net, int64_t given, const float *x, const float *work, int64_t count,
                         const int64_t *rows, const float *grad, float *scratch, int64_t store, float *slope,
                         int64_t first, int64_t learning);

/* The same for each kind of processor; see native/dispatch.c. */
#define DECLARE(kind) \
    void mlp_forward_##kind(const Mlp *net, int64_t count, const float *x, float *work); \
    void mlp_backward_##kind(const Mlp *net, int64_t given, const float *x, const float *work, int64_t count, \
                             const int64_t *rows, const float *grad, float *scratch, int64_t store, float *slope, \
                             int64_t first); \
    void normalized_forward_##kind(const Normalized *net, int64_t count, const float *x, float *work, int64_t learning); \
    void normalized_backward_##kind(const Normalized *net, int64_t given, const float *x, const float *work, \
                                    int64_t count, const int64_t *rows, const float *grad, float *scratch, \
                                    int64_t store, float *slope, int64_t first, int64_t learning);
DECLARE(plain)
DECLARE(avx2)
DECLARE(avx512)
#undef DECLARE

#endif
