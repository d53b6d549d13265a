// Computes the functions of `formulas.py`, each in one pass through memory. The code includes no header of
// TensorFlow, because code with these headers must not be compiled with the options for this machine's CPU.
//
// Matrices are row-major. Functions over rows process the rows [begin, end), so that several threads can share
// the rows. Sums over rows are added to the previous values of the output arrays. A null pointer means that
// an optional array is missing.

#ifndef NATIVE_LOOPS_H_
#define NATIVE_LOOPS_H_

#include <cstdint>

namespace bert {

// The upper 16 bits of a float.
struct Bfloat16 {
  uint16_t bits;
};

struct Rows {
  int64_t begin, end, width;
};

// outputs = gelu(inputs + bias).
template <typename T>
void Gelu(Rows rows, bool approximate, const T* inputs, const float* bias, T* outputs);

// Computes the gradient of Gelu for its inputs, and the outputs of Gelu (`activation`). Adds the gradient for
// the bias, which is a sum over the rows, to `bias_gradient`. `input_gradient` and `gradient` may be the same
// array.
template <typename T>
void GeluGradient(Rows rows, bool approximate, const T* gradient, const T* inputs, const float* bias,
                  T* input_gradient, T* activation, float* bias_gradient);

// Layer normalization of residual + dropout(inputs + bias).
template <typename T>
struct Norm {
  const T* inputs;
  const float* bias;
  const T* residual;
  const uint8_t* mask;
  const float* gamma;
  const float* beta;
  float mask_scale, epsilon;

  void Forward(Rows rows, T* outputs) const;
  // Without a `mask`, `residual_gradient` and `input_gradient` may be the same array. `residual_gradient` and
  // `gradient` may be the same array.
  void Backward(Rows rows, const T* gradient, T* residual_gradient, T* input_gradient, float* bias_gradient,
                float* gamma_gradient, float* beta_gradient) const;
};

// An array [B, N, F, width], some of whose dimensions are broadcast.
struct BroadcastRows {
  const float* data;
  int64_t sizes[3];  // B, N, F
  int64_t steps[3];  // distance between neighbours in each dimension; 0 for a broadcast dimension

  // Returns the row with this index in the broadcast array, or null if `data` is null.
  const float* Row(int64_t index) const {
    if (!data) return nullptr;
    const int64_t f = index % sizes[2], n = index / sizes[2] % sizes[1], b = index / (sizes[2] * sizes[1]);
    return data + b * steps[0] + n * steps[1] + f * steps[2];
  }
};

// Computes `probabilities`, the softmax of scale · scores + bias, and `dropped`, the probabilities after
// dropout. `probabilities` and `scores` may be the same array.
template <typename T>
void Softmax(Rows rows, const T* scores, const BroadcastRows& bias, const uint8_t* mask, float scale,
             float mask_scale, T* dropped, T* probabilities);

// Computes the gradient of Softmax for its scores, and `dropped`, the probabilities after dropout.
// `score_gradient` and `gradient` may be the same array.
template <typename T>
void SoftmaxGradient(Rows rows, const T* gradient, const T* probabilities, const uint8_t* mask, float scale,
                     float mask_scale, T* score_gradient, T* dropped);

// Converts rows [R, number · N · H] into `number` arrays [B, N, F, H], and back. Each row belongs to a
// position b · F + f. For positions without a row, the values are zeros.
template <typename T>
struct Heads {
  int64_t number, heads, length, size;  // number, N, F, H

  // Writes the positions [begin, end) of the outputs. row_of: the row of each position, or `row_count` for a
  // position without a row; null if row and position are the same number.
  void Split(int64_t begin, int64_t end, const T* rows, int64_t row_count, const int32_t* row_of,
             T* const* outputs) const;
  // Writes the rows [begin, end). places: b and f of each row; null if row and position are the same number.
  void Merge(int64_t begin, int64_t end, const T* const* inputs, const int64_t* places, T* rows) const;
};

// Computes eight booleans for each of the blocks [begin, end) of a Philox stream (Salmon et al. 2011). Each
// boolean belongs to 16 bits of the block. It is true if these bits, read as a signed integer, are at least
// `threshold`. The mask has `size` booleans; booleans of the last block beyond `size` are not written.
void DropoutMask(uint64_t key, uint64_t counter_low, uint64_t counter_high, int64_t begin, int64_t end,
                 int64_t size, int16_t threshold, uint8_t* mask);

struct AdamW {
  float factor, rate, decay, beta_1, beta_2, epsilon;

  // Updates the elements [begin, end). The new values may be written to the arrays of the old values.
  void Update(int64_t begin, int64_t end, const float* gradient, const float* old_w, const float* old_m,
              const float* old_v, float* w, float* m, float* v) const;
};

}  // namespace bert

#endif  // NATIVE_LOOPS_H_
