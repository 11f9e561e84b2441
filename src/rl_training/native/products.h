/* Products of matrices of some hundred rows and columns, with what comes before and after them in a perceptron.
 *
 * A product is made in panels of 2 * WIDE columns: the panel of the right matrix is copied into a small block, in the
 * order in which it is read, and every tile of some rows of the left one goes over it with all its sums in registers. The
 * order in which a sum is added up depends on the sizes of the matrices alone, so neither the number of threads nor the
 * width of the vectors changes a bit; whether the processor adds and multiplies in one step does.
 */

#ifndef PRODUCTS_H
#define PRODUCTS_H

#ifdef __AVX512F__
#define WIDE 16
#define TALL 12 /* rows of a tile: 24 sums of 32 registers */
#else
#define WIDE 8
#define TALL 6 /* 12 of 16 */
#endif
#define PANEL (2 * WIDE)
#define THIN 2   /* columns up to which a product is made of dots */
#define DEEP 256 /* rows of a panel that are copied at a time */

#include "vectors.h"

typedef struct {
    const float *data;
    int64_t row, column; /* between neighbours */
} Strided;

enum { PLAIN, RELU, TANH };

/* What happens to a product [rows, columns] before it is written. */
typedef struct {
    const float *start;    /* [columns], added to every row; or none */
    int64_t activation;    /* of the sums */
    const float *through;  /* outputs of activations, by whose slopes the product is multiplied; or none */
    int64_t through_row;   /* between its rows */
    const int64_t *picked; /* which row of `through` belongs to each row; none: the same */
    int64_t slopes;        /* which activation `through` came out of */
} Finish;

/* Load `some` floats; the rest are zeros. */
INLINE vec load_some(const float *from, int some) {
    if (some == WIDE) return load(from);
    vec value = spread(0.0f);
    for (int i = 0; i < some; i++) value[i] = from[i];
    return value;
}

INLINE void store_some(float *to, vec value, int some) {
    if (some == WIDE)
        store(to, value);
    else
        for (int i = 0; i < some; i++) to[i] = value[i];
}

INLINE vec finished(vec value, const Finish *by, int64_t row, int64_t column, int some) {
    vec zero = spread(0.0f);
    if (by->activation == RELU) value = pick(value < 0.0f, zero, value); /* what is not a number stays so */
    if (by->activation == TANH) value = vector_tanh(value);
    if (by->through) {
        int64_t from = by->picked ? by->picked[row] : row;
        vec out = load_some(by->through + from * by->through_row + column, some);
        value = by->slopes == TANH ? value * (1.0f - out * out) : pick(out <= 0.0f, zero, value);
    }
    return value;
}

/* Go on with `rows` by `vectors` sums over a part of their length: the first from what `by` says, the others from what
 * was written so far; the last one finishes. `some` is how many floats of the last vector there are. */
INLINE void tile(int rows, int vectors, int some, Strided a, const float *block, int64_t depth, float *out,
                 int64_t columns, const Finish *by, int64_t row, int64_t column, int first, int last) {
    vec sum[TALL][2];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            int count = v + 1 < vectors ? WIDE : some;
            if (!first)
                sum[i][v] = load_some(out + i * columns + v * WIDE, count);
            else
                sum[i][v] = by->start ? load_some(by->start + column + v * WIDE, count) : spread(0.0f);
        }
    for (int64_t k = 0; k < depth; k++) {
        vec right[2];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) right[v] = load(block + k * PANEL + v * WIDE);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            vec left = spread(a.data[i * a.row + k * a.column]);
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) sum[i][v] += left * right[v];
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            int count = v + 1 < vectors ? WIDE : some;
            vec value = last ? finished(sum[i][v], by, row + i, column + v * WIDE, count) : sum[i][v];
            store_some(out + i * columns + v * WIDE, value, count);
        }
}

/* Pick floats of two vectors, counted through both. */
#ifdef __clang__
INLINE vec shuffled(vec first, vec second, ivec which) {
    vec out;
    for (int i = 0; i < WIDE; i++) out[i] = which[i] < WIDE ? first[which[i]] : second[which[i] - WIDE];
    return out;
}
#else
#define shuffled __builtin_shuffle
#endif

/* Turn rows of a square into its columns. */
INLINE void turn(vec square[WIDE]) {
#pragma GCC unroll 4
    for (int step = 1; step < WIDE; step *= 2) {
        ivec low, high; /* which floats of two rows, `step` apart, come first and second */
        for (int i = 0; i < WIDE; i++) {
            low[i] = i & step ? WIDE + (i & ~step) : i;
            high[i] = i & step ? WIDE + i : i | step;
        }
#pragma GCC unroll 16
        for (int i = 0; i < WIDE; i++) {
            if (i & step) continue;
            vec first = square[i], second = square[i | step];
            square[i] = shuffled(first, second, low);
            square[i | step] = shuffled(first, second, high);
        }
    }
}

/* Copy `depth` rows of up to PANEL columns of a matrix to a block; columns that are not there become zeros. */
INLINE void copy_panel(Strided b, int64_t depth, int64_t columns, float *block) {
    if (b.column == 1) {
        for (int64_t k = 0; k < depth; k++)
            for (int v = 0; v < 2; v++) {
                int64_t left = columns - v * WIDE;
                const float *from = b.data + k * b.row + v * WIDE;
                store(block + k * PANEL + v * WIDE, load_some(from, left >= WIDE ? WIDE : left > 0 ? (int)left : 0));
            }
        return;
    }
    int64_t whole = b.row == 1 ? depth / WIDE * WIDE : 0, wide = columns / WIDE * WIDE;
    for (int64_t j = 0; j < wide; j += WIDE)
        for (int64_t k = 0; k < whole; k += WIDE) {
            vec square[WIDE];
#pragma GCC unroll 16
            for (int i = 0; i < WIDE; i++) square[i] = load(b.data + (j + i) * b.column + k);
            turn(square);
#pragma GCC unroll 16
            for (int i = 0; i < WIDE; i++) store(block + (k + i) * PANEL + j, square[i]);
        }
    for (int64_t k = 0; k < depth; k++)
        for (int64_t j = k < whole ? wide : 0; j < PANEL; j++)
            block[k * PANEL + j] = j < columns ? b.data[k * b.row + j * b.column] : 0.0f;
}

/* Write the columns of a @ b, finished, from `column` on; at most a panel of them. */
INLINE void panel(int vectors, int some, Strided a, Strided b, float *out, int64_t rows, int64_t inner, int64_t columns,
                  const Finish *by, int64_t column, float *block) {
    int64_t done = 0, depth, width = (vectors - 1) * WIDE + some;
    do { /* once, too, for sums of nothing */
        depth = inner - done < DEEP ? inner - done : DEEP;
        int first = done == 0, last = done + depth >= inner;
        Strided part = {b.data + done * b.row + column * b.column, b.row, b.column};
        copy_panel(part, depth, width, block);
        int64_t r = 0;
#define TILES(n) \
    for (; r + n <= rows; r += n) { \
        Strided left = {a.data + r * a.row + done * a.column, a.row, a.column}; \
        tile(n, vectors, some, left, block, depth, out + r * columns + column, columns, by, r, column, first, last); \
    }
        TILES(TALL)
        TILES(4)
        TILES(1)
#undef TILES
        done += depth;
    } while (done < inner);
}

/* The same as `multiply` for few columns, of matrices in which what is added up lies side by side. */
static void multiply_thin(Strided a, Strided b, float *out, int64_t rows, int64_t inner, int64_t columns,
                          const Finish *by) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < columns; j++) {
            const float *left = a.data + r * a.row, *right = b.data + j * b.column;
            float parts[16] = {0}, sum = by->start ? by->start[j] : 0.0f;
            int64_t k = 0;
            for (; k + 16 <= inner; k += 16)
                for (int i = 0; i < 16; i++) parts[i] += left[k + i] * right[k + i];
            for (; k < inner; k++) parts[k % 16] += left[k] * right[k];
            for (int i = 0; i < 16; i++) sum += parts[i];
            out[r * columns + j] = finished(spread(sum), by, r, j, 1)[0];
        }
}

/* Write a @ b, finished, to out [rows, columns]: a [rows, inner], b [inner, columns]. */
static void multiply(Strided a, Strided b, float *out, int64_t rows, int64_t inner, int64_t columns, const Finish *by,
                     int64_t threads) {
    int64_t panels = (columns + PANEL - 1) / PANEL;
    if (columns <= THIN && a.column == 1 && b.row == 1) {
        multiply_thin(a, b, out, rows, inner, columns, by);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && rows * inner * columns > 1 << 19)
    for (int64_t p = 0; p < panels; p++) {
        float block[DEEP * PANEL] __attribute__((aligned(64)));
        int64_t column = p * PANEL, left = columns - column;
        if (left >= PANEL)
            panel(2, WIDE, a, b, out, rows, inner, columns, by, column, block);
        else if (left > WIDE)
            panel(2, (int)(left - WIDE), a, b, out, rows, inner, columns, by, column, block);
        else
            panel(1, (int)left, a, b, out, rows, inner, columns, by, column, block);
    }
}

#endif
