/* The walk of an LSTM (Hochreiter & Schmidhuber 1997) through sequences, there and back; see native/perceptron.h.
 *
 * What does not depend on the step before, products with inputs and the gradients of weights, is left to the caller, who
 * makes one large product of it. Compiled several times, for different processors; see native/dispatch.c.
 */

#include "lstm.h"
#include "perceptron.h"

INLINE vec vector_sigmoid(vec x) {
    vec bounded = pick(x > 80.0f, spread(80.0f), pick(x < -80.0f, spread(-80.0f), x));
    return pick(x != x, x, 1.0f / (1.0f + vector_exp(-bounded)));
}

/* Copy b [inner, columns] into panels of 16 columns, the last of which may have eight. */
static void pack(const float *b, int64_t row, int64_t column, int64_t inner, int64_t columns, float *packed) {
    for (int64_t j = 0; j < columns; j += 2 * WIDE) {
        int64_t wide = columns - j < 2 * WIDE ? WIDE : 2 * WIDE;
        for (int64_t k = 0; k < inner; k++)
            for (int64_t v = 0; v < wide; v++) packed[k * 2 * WIDE + v] = b[k * row + (j + v) * column];
        packed += inner * 2 * WIDE;
    }
}

/* Write a [rows, inner] @ b, which was packed, to out [rows, columns]. */
static void packed_product(const float *a, const float *packed, float *out, int64_t rows, int64_t inner,
                           int64_t columns) {
    for (int64_t j = 0; j < columns; j += 2 * WIDE) {
        int64_t r = 0;
        if (columns - j >= 2 * WIDE) {
            for (; r + 6 <= rows; r += 6) tile(6, 2, a + r * inner, inner, 1, packed, out + r * columns + j, inner, columns, 0);
            for (; r + 4 <= rows; r += 4) tile(4, 2, a + r * inner, inner, 1, packed, out + r * columns + j, inner, columns, 0);
            for (; r < rows; r++) tile(1, 2, a + r * inner, inner, 1, packed, out + r * columns + j, inner, columns, 0);
        } else {
            for (; r + 6 <= rows; r += 6) tile(6, 1, a + r * inner, inner, 1, packed, out + r * columns + j, inner, columns, 0);
            for (; r < rows; r++) tile(1, 1, a + r * inner, inner, 1, packed, out + r * columns + j, inner, columns, 0);
        }
        packed += inner * 2 * WIDE;
    }
}

void OF_KIND(lstm_forward)(const Lstm *of) {
    int64_t size = of->size, wide = 4 * size, row = 0;
    float *packed = of->work, *sums = of->work + wide * size;
    const float *hidden = of->hidden, *cell = of->cell;
    pack(of->weight, 1, size, size, wide, packed);
    for (int64_t t = 0; t < of->steps; t++) {
        float *gates = of->gates + row * wide, *cells = of->cells + row * size, *hiddens = of->hiddens + row * size;
        packed_product(hidden, packed, sums, of->counts[t], size, wide);
        for (int64_t b = 0; b < of->counts[t]; b++) {
            float *gate = gates + b * wide, *sum = sums + b * wide;
            for (int64_t i = 0; i < size; i += WIDE) {
                vec in = vector_sigmoid(load(gate + i) + load(sum + i));
                vec forget = vector_sigmoid(load(gate + size + i) + load(sum + size + i));
                vec new = vector_tanh(load(gate + 2 * size + i) + load(sum + 2 * size + i));
                vec out = vector_sigmoid(load(gate + 3 * size + i) + load(sum + 3 * size + i));
                vec after = forget * load(cell + b * size + i) + in * new;
                store(gate + i, in);
                store(gate + size + i, forget);
                store(gate + 2 * size + i, new);
                store(gate + 3 * size + i, out);
                store(cells + b * size + i, after);
                store(hiddens + b * size + i, out * vector_tanh(after));
            }
        }
        hidden = hiddens;
        cell = cells;
        row += of->counts[t];
    }
}

void OF_KIND(lstm_backward)(const Lstm *of, const float *by_hiddens, float *by_hidden, float *by_cell) {
    int64_t size = of->size, wide = 4 * size, row = 0;
    float *packed = of->work;
    pack(of->weight, size, 1, wide, size, packed);
    for (int64_t t = 0; t < of->steps; t++) row += of->counts[t];
    for (int64_t t = of->steps - 1; t >= 0; t--) {
        row -= of->counts[t];
        const float *before = t ? of->cells + (row - of->counts[t - 1]) * size : of->cell;
        const float *cells = of->cells + row * size, *slopes = by_hiddens + row * size;
        float *gates = of->gates + row * wide;
        for (int64_t b = 0; b < of->counts[t]; b++) {
            float *gate = gates + b * wide;
            for (int64_t i = 0; i < size; i += WIDE) {
                vec in = load(gate + i), forget = load(gate + size + i);
                vec new = load(gate + 2 * size + i), out = load(gate + 3 * size + i);
                vec bent = vector_tanh(load(cells + b * size + i));
                vec hidden = load(slopes + b * size + i) + load(by_hidden + b * size + i);
                vec cell = load(by_cell + b * size + i) + hidden * out * (1.0f - bent * bent);
                store(gate + i, cell * new * in * (1.0f - in));
                store(gate + size + i, cell * load(before + b * size + i) * forget * (1.0f - forget));
                store(gate + 2 * size + i, cell * in * (1.0f - new * new));
                store(gate + 3 * size + i, hidden * bent * out * (1.0f - out));
                store(by_cell + b * size + i, cell * forget);
            }
        }
        packed_product(gates, packed, by_hidden, of->counts[t], wide, size);
    }
}
