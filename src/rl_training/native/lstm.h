/* What the caller in Python and the compiled code agree on; see models/recurrent/compiled_lstm.py. */

#ifndef LSTM_H
#define LSTM_H

#include <stdint.h>

/* One layer of an LSTM over sequences of up to `steps` steps, `size` units, a multiple of eight. The longest sequences
 * come first: counts [steps] says how many are still under way, and rows of the same step lie together, `rows` in all. */
typedef struct {
    int64_t steps, size;
    const int64_t *counts;
    const float *weight;        /* [4 * size, size], of the memory */
    const float *hidden, *cell; /* [counts[0], size] before the first step */
    float *gates;               /* [rows, 4 * size] */
    float *hiddens, *cells;     /* [rows, size] after each step */
    float *work;                /* [4 * size * (size in whole sixteens + counts[0])] */
} Lstm;

/* Go through the sequences. gates hold what inputs and biases add to them, and are replaced by their activated values:
 * input, forget, new, output. */
void lstm_forward(const Lstm *of);
void lstm_forward_plain(const Lstm *of);
void lstm_forward_avx2(const Lstm *of);

/* Go back, given the gradient [rows, size] by hiddens. by_hidden and by_cell [counts[0], size] are those by the memory
 * after the last step of each sequence, and become those by the memory before the first. What lstm_forward left in gates
 * is replaced by the gradient of what it found there. */
void lstm_backward(const Lstm *of, const float *by_hiddens, float *by_hidden, float *by_cell);
void lstm_backward_plain(const Lstm *of, const float *by_hiddens, float *by_hidden, float *by_cell);
void lstm_backward_avx2(const Lstm *of, const float *by_hiddens, float *by_hidden, float *by_cell);

#endif
