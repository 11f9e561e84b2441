/* Perceptrons of any size, forward and back; see native/mlp.h and native/products.h.
 *
 * Compiled several times, for different processors, each time with another name; see native/dispatch.c.
 */

#include <math.h>

#include "mlp.h"
#include "products.h"

void OF_KIND(mlp_forward)(const Mlp *net, int64_t count, const float *x, float *work) {
    const float *weight = net->parameters;
    for (int64_t layer = 0; layer < net->layers; layer++) {
        int64_t inputs = net->sizes[layer], outputs = net->sizes[layer + 1];
        Finish finish = {.start = weight + outputs * inputs,
                         .activation = layer + 1 < net->layers ? net->activation : PLAIN};
        multiply((Strided){x, inputs, 1}, (Strided){weight, 1, inputs}, work, count, inputs, outputs, &finish,
                 net->threads);
        x = work;
        work += count * outputs;
        weight += outputs * inputs + outputs;
    }
}

/* Write the sums over all rows of [count, width]. */
static void add_rows(const float *from, int64_t count, int64_t width, float *to) {
    memset(to, 0, sizeof(float) * width);
    for (int64_t r = 0; r < count; r++)
        for (int64_t i = 0; i < width; i++) to[i] += from[r * width + i];
}

void OF_KIND(mlp_backward)(const Mlp *net, int64_t given, const float *x, const float *work, int64_t count,
                           const int64_t *rows, const float *grad, float *scratch, int64_t store, float *slope,
                           int64_t first) {
    const float *weight = net->parameters, *outside = work;
    float *gradient = net->gradient;
    int64_t widest = 0;
    const Finish nothing = {0};
    for (int64_t i = 0; i < net->layers; i++) {
        int64_t size = (net->sizes[i] + 1) * net->sizes[i + 1];
        weight += size;
        gradient += size;
        outside += i + 1 < net->layers ? given * net->sizes[i + 1] : 0;
        widest = net->sizes[i + 1] > widest ? net->sizes[i + 1] : widest;
    }
    for (int64_t layer = net->layers - 1; layer >= 0; layer--) {
        int64_t inputs = net->sizes[layer], outputs = net->sizes[layer + 1];
        if (layer > 0) outside -= given * inputs;
        const float *below = layer > 0 ? outside : x;
        weight -= (inputs + 1) * outputs;
        gradient -= (inputs + 1) * outputs;
        if (store) {
            multiply((Strided){grad, 1, outputs}, (Strided){below, inputs, 1}, gradient, outputs, count, inputs, &nothing,
                     net->threads);
            add_rows(grad, count, outputs, gradient + outputs * inputs);
        }
        if (layer > 0) {
            float *down = scratch + layer % 2 * count * widest;
            Finish finish = {.through = below, .through_row = inputs, .picked = rows, .slopes = net->activation};
            multiply((Strided){grad, outputs, 1}, (Strided){weight, inputs, 1}, down, count, outputs, inputs, &finish,
                     net->threads);
            grad = down;
        } else if (slope) {
            multiply((Strided){grad, outputs, 1}, (Strided){weight + first, inputs, 1}, slope, count, outputs,
                     inputs - first, &nothing, net->threads);
        }
    }
}

#define COLUMNS 64 /* of a batch that are normalised at a time */
#define GROUP 32   /* rows that are added up before they are added to the others, which keeps sums exact */

/* What a normalised layer keeps of a batch; [width] each. */
typedef struct {
    float *mean, *inverse; /* by which it was normalised: (x - mean) * inverse */
    float *r, *d;          /* and then corrected: times r, plus d */
} Kept;

static Kept kept_at(float *at, int64_t width) { return (Kept){at, at + width, at + 2 * width, at + 3 * width}; }

/* Normalise `width` columns of x, which lie `stride` apart, to z, and scale and shift them. */
static void normalise(const Normalized *net, int64_t layer, int64_t from, int64_t width, int64_t stride, int64_t count,
                      const float *x, const float *scale, float *z, Kept kept, int64_t learning) {
    float sums[COLUMNS], squares[COLUMNS], part[COLUMNS], factor[COLUMNS], shift[COLUMNS];
    float *running = net->mean[layer] + from, *variance = net->variance[layer] + from;
    float *mean = kept.mean + from, *inverse = kept.inverse + from, *r = kept.r + from, *d = kept.d + from;
    for (int64_t i = 0; i < width; i++) {
        mean[i] = running[i];
        inverse[i] = 1.0f / sqrtf(variance[i] + (float)net->eps);
        r[i] = 1.0f;
        d[i] = 0.0f;
    }
    if (learning) {
        memset(sums, 0, sizeof(sums));
        memset(squares, 0, sizeof(squares));
        for (int64_t first = 0; first < count; first += GROUP) {
            int64_t last = first + GROUP < count ? first + GROUP : count;
            memset(part, 0, sizeof(part));
            for (int64_t row = first; row < last; row++)
                for (int64_t i = 0; i < width; i++) part[i] += x[row * stride + i];
            for (int64_t i = 0; i < width; i++) sums[i] += part[i];
        }
        for (int64_t i = 0; i < width; i++) mean[i] = sums[i] / (float)count;
        for (int64_t first = 0; first < count; first += GROUP) {
            int64_t last = first + GROUP < count ? first + GROUP : count;
            memset(part, 0, sizeof(part));
            for (int64_t row = first; row < last; row++)
                for (int64_t i = 0; i < width; i++) {
                    float centred = x[row * stride + i] - mean[i];
                    part[i] += centred * centred;
                }
            for (int64_t i = 0; i < width; i++) squares[i] += part[i];
        }
        int corrects = *net->calls[layer] >= net->warm_up;
        for (int64_t i = 0; i < width; i++) {
            float var = squares[i] / (float)count, deviation = sqrtf(var + (float)net->eps);
            if (corrects) {
                float before = sqrtf(variance[i] + (float)net->eps), most = net->r_max, far = net->d_max;
                float ratio = deviation / before, off = (mean[i] - running[i]) / before;
                r[i] = ratio < 1.0f / most ? 1.0f / most : ratio > most ? most : ratio;
                d[i] = off < -far ? -far : off > far ? far : off;
            }
            inverse[i] = 1.0f / deviation;
            running[i] += (float)net->momentum * (mean[i] - running[i]);
            variance[i] += (float)net->momentum * (var - variance[i]);
        }
    }
    for (int64_t i = 0; i < width; i++) {
        factor[i] = scale[i] * inverse[i] * r[i];
        shift[i] = scale[stride + i] + scale[i] * d[i];
    }
    for (int64_t row = 0; row < count; row++)
        for (int64_t i = 0; i < width; i++)
            z[row * stride + i] = (x[row * stride + i] - mean[i]) * factor[i] + shift[i];
}

/* Turn the gradient by `width` columns of z into that by x, in its place; with `learning`, write that of scale and shift,
 * unless grad_scale is none. */
static void through_normalise(int64_t from, int64_t width, int64_t stride, int64_t count, const float *x,
                              const float *scale, const Kept kept, float *grad, float *grad_scale, int64_t learning) {
    float totals[COLUMNS] = {0}, alongs[COLUMNS] = {0}, part[COLUMNS], other[COLUMNS], factor[COLUMNS];
    const float *mean = kept.mean + from, *inverse = kept.inverse + from, *r = kept.r + from, *d = kept.d + from;
    for (int64_t i = 0; i < width; i++) factor[i] = scale[i] * inverse[i] * r[i];
    if (learning) {
        for (int64_t first = 0; first < count; first += GROUP) {
            int64_t last = first + GROUP < count ? first + GROUP : count;
            memset(part, 0, sizeof(part));
            memset(other, 0, sizeof(other));
            for (int64_t row = first; row < last; row++)
                for (int64_t i = 0; i < width; i++) {
                    part[i] += grad[row * stride + i];
                    other[i] += grad[row * stride + i] * (x[row * stride + i] - mean[i]);
                }
            for (int64_t i = 0; i < width; i++) {
                totals[i] += part[i];
                alongs[i] += other[i];
            }
        }
        for (int64_t i = 0; i < width; i++) {
            alongs[i] *= inverse[i];
            if (grad_scale) {
                grad_scale[i] = alongs[i] * r[i] + totals[i] * d[i];
                grad_scale[stride + i] = totals[i];
            }
            /* The batch's mean and deviation move with x: what changes only them has no effect. */
            totals[i] /= (float)count;
            alongs[i] *= inverse[i] / (float)count;
        }
    }
    for (int64_t row = 0; row < count; row++)
        for (int64_t i = 0; i < width; i++) {
            float *at = grad + row * stride + i;
            if (learning)
                *at = (*at - totals[i] - (x[row * stride + i] - mean[i]) * alongs[i]) * factor[i];
            else
                *at *= factor[i];
        }
}

void OF_KIND(normalized_forward)(const Normalized *net, int64_t count, const float *x, float *work, int64_t learning) {
    const Mlp *mlp = &net->mlp;
    int64_t threads = mlp->threads;
    const float *scale = mlp->parameters;
    for (int64_t layer = 0; layer < mlp->layers; layer++) {
        int64_t inputs = mlp->sizes[layer], outputs = mlp->sizes[layer + 1];
        float *z = work, *out = work + count * inputs + 4 * inputs;
        Kept kept = kept_at(work + count * inputs, inputs);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && inputs > COLUMNS)
        for (int64_t from = 0; from < inputs; from += COLUMNS) {
            int64_t width = inputs - from < COLUMNS ? inputs - from : COLUMNS;
            normalise(net, layer, from, width, inputs, count, x + from, scale + from, z + from, kept, learning);
        }
        if (learning) *net->calls[layer] += 1;
        const float *weight = scale + 2 * inputs;
        Finish finish = {.start = weight + outputs * inputs,
                         .activation = layer + 1 < mlp->layers ? mlp->activation : PLAIN};
        multiply((Strided){z, inputs, 1}, (Strided){weight, 1, inputs}, out, count, inputs, outputs, &finish,
                 threads);
        x = out;
        work = out + count * outputs;
        scale = weight + outputs * inputs + outputs;
    }
}

/* Turn a gradient [count, width] by outputs of activations into that by their sums. */
static void through_activation(const float *out, const int64_t *rows, int64_t count, int64_t width, int64_t activation,
                               float *grad) {
    for (int64_t r = 0; r < count; r++) {
        const float *from = out + (rows ? rows[r] : r) * width;
        for (int64_t i = 0; i < width; i++) {
            float slope = activation == TANH ? 1.0f - from[i] * from[i] : from[i] <= 0.0f ? 0.0f : 1.0f;
            grad[r * width + i] *= slope;
        }
    }
}

void OF_KIND(normalized_backward)(const Normalized *net, int64_t given, const float *x, const float *work, int64_t count,
                                  const int64_t *rows, const float *grad, float *scratch, int64_t store, float *slope,
                                  int64_t first, int64_t learning) {
    const Mlp *mlp = &net->mlp;
    int64_t threads = mlp->threads;
    const float *scale = mlp->parameters;
    float *gradient = mlp->gradient;
    const Finish nothing = {0};
    int64_t widest = 0;
    for (int64_t i = 0; i < mlp->layers; i++) {
        int64_t inputs = mlp->sizes[i], outputs = mlp->sizes[i + 1], size = 2 * inputs + (inputs + 1) * outputs;
        scale += size;
        gradient += size;
        work += given * inputs + 4 * inputs + given * outputs;
        widest = inputs > widest ? inputs : widest;
    }
    for (int64_t layer = mlp->layers - 1; layer >= 0; layer--) {
        int64_t inputs = mlp->sizes[layer], outputs = mlp->sizes[layer + 1];
        int64_t size = 2 * inputs + (inputs + 1) * outputs;
        scale -= size;
        gradient -= size;
        work -= given * inputs + 4 * inputs + given * outputs;
        const float *weight = scale + 2 * inputs, *below = layer > 0 ? work - given * inputs : x;
        float *down = scratch + layer % 2 * count * widest, *grad_weight = gradient + 2 * inputs;
        Kept kept = kept_at((float *)work + given * inputs, inputs);
        if (store) {
            multiply((Strided){grad, 1, outputs}, (Strided){work, inputs, 1}, grad_weight, outputs, count, inputs,
                     &nothing, threads);
            add_rows(grad, count, outputs, grad_weight + outputs * inputs);
        }
        multiply((Strided){grad, outputs, 1}, (Strided){weight, inputs, 1}, down, count, outputs, inputs, &nothing,
                 threads);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && inputs > COLUMNS)
        for (int64_t from = 0; from < inputs; from += COLUMNS) {
            int64_t width = inputs - from < COLUMNS ? inputs - from : COLUMNS;
            through_normalise(from, width, inputs, count, below + from, scale + from, kept, down + from,
                              store ? gradient + from : 0, learning);
        }
        if (layer > 0) through_activation(below, rows, count, inputs, mlp->activation, down);
        if (layer == 0 && slope)
            for (int64_t r = 0; r < count; r++)
                memcpy(slope + r * (inputs - first), down + r * inputs + first, sizeof(float) * (inputs - first));
        grad = down;
    }
}
