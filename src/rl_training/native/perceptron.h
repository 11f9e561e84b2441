/* Small perceptrons: linear layers with an activation between them, whose sums may be normalised before (Ba et al. 2016).
 *
 * For networks of this size, an update by separate operations is mostly what happens between them, so all of it is one
 * call. The products of matrices are loops of our own: the registers they use are 256 bits wide and no wider. A BLAS
 * would take those of 512 where there are any, for which processors lower their clock for milliseconds, and then
 * everything that follows an update in Python is slower by half.
 *
 * Parameters and their gradient are flat vectors: weight [out, in], bias [out], weight, bias, ... of the layers, whose
 * widths from the input to the output are in `sizes`; then, if they are normalised, scale [out], shift [out], ... of all
 * layers but the last. Samples lie side by side, in the last dimension: [width, count], count in whole eights.
 *
 * Included by every file that is compiled several times, for different processors, each time as another KIND; see
 * native/dispatch.c.
 */

#ifndef PERCEPTRON_H
#define PERCEPTRON_H

#include "vectors.h"

typedef struct {
    int64_t layers;       /* of weights */
    const int64_t *sizes; /* [layers + 1] */
    int64_t layer_norm;   /* 0 or 1 */
    int64_t tanh;         /* 0: rectified units, 1: tanh */
} Perceptron;

/* Write `rows` by `vectors` * 8 numbers of start + a @ b, with b in rows of 16. Both counts are known to the compiler, so
 * that the sums stay in registers. */
INLINE void tile(int rows, int vectors, const float *a, int64_t a_row, int64_t a_column, const float *b, float *out,
                 int64_t inner, int64_t columns, const float *start) {
    vec sum[6][2];
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++) sum[i][v] = spread(start ? start[i] : 0.0f);
    for (int64_t k = 0; k < inner; k++) {
        vec right[2];
        for (int v = 0; v < vectors; v++) right[v] = load(b + k * 2 * WIDE + v * WIDE);
        for (int i = 0; i < rows; i++) {
            vec left = spread(a[i * a_row + k * a_column]);
            for (int v = 0; v < vectors; v++) sum[i][v] += left * right[v];
        }
    }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++) store(out + i * columns + v * WIDE, sum[i][v]);
}

/* Write the columns of start + a @ b for which there are `vectors` * 8 columns of b, copied to packed first: rows of a
 * wide matrix lie so far apart that they would push each other out of the cache. */
INLINE void panel(int vectors, const float *a, int64_t a_row, int64_t a_column, const float *b, float *out,
                  int64_t rows, int64_t inner, int64_t columns, const float *start, float *packed) {
    for (int64_t k = 0; k < inner; k++)
        for (int v = 0; v < vectors; v++)
            store(packed + k * 2 * WIDE + v * WIDE, load(b + k * columns + v * WIDE));
    int64_t r = 0;
#define TILE(n) \
    for (; r + n <= rows; r += n) \
        tile(n, vectors, a + r * a_row, a_row, a_column, packed, out + r * columns, inner, columns, start ? start + r : 0)
    TILE(6);
    TILE(2);
    TILE(1);
#undef TILE
}

/* Write start + a @ b to out [rows, columns], but for what columns are left over after the last eight: a [rows, inner]
 * with any strides, b [inner, columns] without gaps, start a number for each row, or none for zeros. packed has room for
 * 16 columns of b. */
static void product(const float *a, int64_t a_row, int64_t a_column, const float *b, float *out, int64_t rows,
                    int64_t inner, int64_t columns, const float *start, float *packed) {
    int64_t j = 0;
    for (; j + 2 * WIDE <= columns; j += 2 * WIDE)
        panel(2, a, a_row, a_column, b + j, out + j, rows, inner, columns, start, packed);
    for (; j + WIDE <= columns; j += WIDE)
        panel(1, a, a_row, a_column, b + j, out + j, rows, inner, columns, start, packed);
}

/* Return the product of two rows whose length is a multiple of eight. */
INLINE float dot(const float *a, const float *b, int64_t length) {
    vec sum = spread(0.0f);
    for (int64_t k = 0; k < length; k += WIDE) sum += load(a + k) * load(b + k);
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

/* Return the sum of a row whose length is a multiple of eight. */
INLINE float total(const float *a, int64_t length) {
    vec sum = spread(0.0f);
    for (int64_t k = 0; k < length; k += WIDE) sum += load(a + k);
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

static void transpose(const float *from, float *to, int64_t rows, int64_t columns) {
    for (int64_t r = 0; r < rows; r += WIDE) {
        int64_t end = r + WIDE < rows ? r + WIDE : rows;
        for (int64_t c = 0; c < columns; c++)
            for (int64_t i = r; i < end; i++) to[c * rows + i] = from[i * columns + c];
    }
}

/* Where the scales and shifts of normalised layers begin in a flat vector. */
static int64_t first_norm(const Perceptron *net) {
    int64_t at = 0;
    for (int64_t i = 0; i < net->layers; i++) at += (net->sizes[i] + 1) * net->sizes[i + 1];
    return at;
}

/* Normalise x [width, count] over the width, then scale and shift it; norm is the scales, then the shifts. Keep what
 * was normalised [width, count], and by what it was multiplied [count]. */
static void normalize(const float *norm, int64_t width, int64_t count, float *x, float *normal, float *factor) {
    for (int64_t j = 0; j < count; j += WIDE) {
        vec sum = spread(0.0f), squares = spread(0.0f);
        for (int64_t r = 0; r < width; r++) sum += load(x + r * count + j);
        vec mean = sum / (float)width;
        for (int64_t r = 0; r < width; r++) {
            vec centred = load(x + r * count + j) - mean;
            squares += centred * centred;
            store(normal + r * count + j, centred);
        }
        for (int i = 0; i < WIDE; i++) factor[j + i] = 1.0f / __builtin_sqrtf(squares[i] / (float)width + 1e-5f);
        vec by = load(factor + j);
        for (int64_t r = 0; r < width; r++) {
            vec value = load(normal + r * count + j) * by;
            store(normal + r * count + j, value);
            store(x + r * count + j, value * norm[r] + norm[width + r]);
        }
    }
}

/* Turn the gradient by what `normalize` wrote to x into that by what x was before; write that of norm to out. */
static void through_normalize(const float *norm, int64_t width, int64_t count, const float *normal, const float *factor,
                              float *grad, float *out) {
    for (int64_t r = 0; r < width; r++) {
        out[r] = dot(grad + r * count, normal + r * count, count);
        out[width + r] = total(grad + r * count, count);
    }
    for (int64_t j = 0; j < count; j += WIDE) {
        vec mean = spread(0.0f), slope = spread(0.0f);
        for (int64_t r = 0; r < width; r++) {
            vec value = load(grad + r * count + j) * norm[r];
            mean += value;
            slope += value * load(normal + r * count + j);
        }
        mean /= (float)width;
        slope /= (float)width;
        for (int64_t r = 0; r < width; r++) {
            vec value = load(grad + r * count + j) * norm[r] - mean - slope * load(normal + r * count + j);
            store(grad + r * count + j, value * load(factor + j));
        }
    }
}

/* Write every layer's outputs [width, count] to work, one after the other behind the inputs, which are there already;
 * return the last. What is kept of normalised layers, values [width, count] and factors [count] of each, goes to
 * normals. */
static float *forward(const Perceptron *net, const float *flat, int64_t count, float *work, float *packed,
                      float *normals) {
    const float *norm = flat + first_norm(net);
    float *below = work;
    for (int64_t layer = 0; layer < net->layers; layer++) {
        int64_t inputs = net->sizes[layer], outputs = net->sizes[layer + 1];
        float *out = below + inputs * count;
        product(flat, inputs, 1, below, out, outputs, inputs, count, flat + outputs * inputs, packed);
        flat += outputs * inputs + outputs;
        if (net->layer_norm && layer + 1 < net->layers) {
            normalize(norm, outputs, count, out, normals, normals + outputs * count);
            norm += 2 * outputs;
            normals += (outputs + 1) * count;
        }
        if (layer + 1 < net->layers && net->tanh)
            for (int64_t i = 0; i < outputs * count; i += WIDE) store(out + i, vector_tanh(load(out + i)));
        else if (layer + 1 < net->layers) /* what is not a number stays so */
            for (int64_t i = 0; i < outputs * count; i++) out[i] = out[i] < 0.0f ? 0.0f : out[i];
        below = out;
    }
    return below;
}

/* Write the gradient of the parameters to `result`, given that of the last layer's outputs, and what forward wrote to
 * work and normals. scratch has room for three times the widest layer's outputs. */
static void backward(const Perceptron *net, const float *parameters, float *result, const float *work, int64_t count,
                     const float *grad, float *scratch, float *packed, const float *normals) {
    int64_t last = first_norm(net), norm = last, widest = 0;
    const float *flat = parameters + last;
    float *out = result + last;
    if (net->layer_norm)
        for (int64_t i = 1; i < net->layers; i++) norm += 2 * net->sizes[i];
    if (net->layer_norm)
        for (int64_t i = 1; i < net->layers; i++) normals += (net->sizes[i] + 1) * count;
    for (int64_t i = 0; i <= net->layers; i++) widest = net->sizes[i] > widest ? net->sizes[i] : widest;
    for (int64_t i = 0; i < net->layers; i++) work += net->sizes[i] * count;
    for (int64_t layer = net->layers - 1; layer >= 0; layer--) {
        int64_t inputs = net->sizes[layer], outputs = net->sizes[layer + 1];
        float *turned = scratch + 2 * widest * count, *down = scratch + layer % 2 * widest * count;
        flat -= outputs * inputs + outputs;
        out -= outputs * inputs + outputs;
        work -= inputs * count;
        for (int64_t r = 0; r < outputs; r++) out[outputs * inputs + r] = total(grad + r * count, count);
        if (inputs >= WIDE) {
            transpose(work, turned, inputs, count);
            product(grad, count, 1, turned, out, outputs, count, inputs, 0, packed);
        }
        for (int64_t r = 0; r < outputs; r++) /* the columns that are left over */
            for (int64_t i = inputs - inputs % WIDE; i < inputs; i++)
                out[r * inputs + i] = dot(grad + r * count, work + i * count, count);
        if (layer == 0) return;
        product(flat, 1, inputs, grad, down, inputs, outputs, count, 0, packed);
        if (net->tanh)
            for (int64_t i = 0; i < inputs * count; i++) down[i] *= 1.0f - work[i] * work[i];
        else
            for (int64_t i = 0; i < inputs * count; i++) down[i] = work[i] <= 0.0f ? 0.0f : down[i];
        if (net->layer_norm) {
            norm -= 2 * inputs;
            normals -= (inputs + 1) * count;
            through_normalize(parameters + norm, inputs, count, normals, normals + inputs * count, down, result + norm);
        }
        grad = down;
    }
}

#endif
