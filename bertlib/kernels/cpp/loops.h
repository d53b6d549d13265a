// The arithmetic of the kernels in `formulas.py`, each in one pass through memory. Plain C++, so that it can
// be compiled for the very CPU it runs on, which TensorFlow's headers do not allow.
//
// Matrices are row-major. Loops over rows take the rows [begin, end), so that threads can divide them up.
// Sums over rows are added to what their arrays hold. Null stands for an array that is left out.

#ifndef NATIVE_LOOPS_H_
#define NATIVE_LOOPS_H_

#include <cstdint>

namespace bert {

// The upper half of a float.
struct Bfloat16 {
  uint16_t bits;
};

struct Rows {
  int64_t begin, end, width;
};

// outputs = inputs + bias; outputs may be inputs.
template <typename T>
void AddBias(Rows rows, const T* inputs, const T* bias, T* outputs);

// The elements [begin, end) of a sum, which may be one of both.
template <typename T>
void Add(int64_t begin, int64_t end, const T* a, const T* b, T* sum);

// outputs = gelu(inputs + bias).
template <typename T>
void Gelu(Rows rows, bool approximate, const T* inputs, const float* bias, T* outputs);

// Also `activation`, what Gelu returned, and the gradient's sums over the rows. `input_gradient` may be
// `gradient`.
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
  // The two gradients of rows may be the same array if there is no `mask`. The first may be `gradient`.
  void Backward(Rows rows, const T* gradient, T* residual_gradient, T* input_gradient, float* bias_gradient,
                float* gamma_gradient, float* beta_gradient) const;
};

// An array [B, N, F, width], some of whose dimensions are broadcast.
struct BroadcastRows {
  const float* data;
  int64_t sizes[3];  // B, N, F
  int64_t steps[3];  // from one row to the next; 0 where broadcast

  // The row of this index in the whole array, or null without an array.
  const float* Row(int64_t index) const {
    if (!data) return nullptr;
    const int64_t f = index % sizes[2], n = index / sizes[2] % sizes[1], b = index / (sizes[2] * sizes[1]);
    return data + b * steps[0] + n * steps[1] + f * steps[2];
  }
};

// Softmax of scale · scores + bias, and its dropout. `probabilities` may be `scores`.
template <typename T>
void Softmax(Rows rows, const T* scores, const BroadcastRows& bias, const uint8_t* mask, float scale,
             float mask_scale, T* dropped, T* probabilities);

// The gradient for scores, which may be `gradient`, and what Softmax's dropout returned.
template <typename T>
void SoftmaxGradient(Rows rows, const T* gradient, const T* probabilities, const uint8_t* mask, float scale,
                     float mask_scale, T* score_gradient, T* dropped);

// Rows [R, number · N · H] and `number` arrays [B, N, F, H]: the same values in another order. A row belongs
// to a position b F + f, and positions without a row are zeros.
template <typename T>
struct Heads {
  int64_t number, heads, length, size;  // number, N, F, H

  // The positions [begin, end); row_of: the row of each, or the number of rows if it has none; null if rows
  // are positions.
  void Split(int64_t begin, int64_t end, const T* rows, int64_t row_count, const int32_t* row_of,
             T* const* outputs) const;
  // The rows [begin, end); places: b and f of each; null if rows are positions.
  void Merge(int64_t begin, int64_t end, const T* const* inputs, const int64_t* places, T* rows) const;
};

// Eight booleans for each of the blocks [begin, end) of a Philox stream (Salmon et al. 2011): whether 16
// bits, as an integer, are at least `threshold`. Stops at `size` booleans from the stream's first.
void DropoutMask(uint64_t key, uint64_t counter_low, uint64_t counter_high, int64_t begin, int64_t end,
                 int64_t size, int16_t threshold, uint8_t* mask);

struct AdamW {
  float factor, rate, decay, beta_1, beta_2, epsilon;

  // Elements [begin, end). New values may overwrite old ones.
  void Update(int64_t begin, int64_t end, const float* gradient, const float* old_w, const float* old_m,
              const float* old_v, float* w, float* m, float* v) const;
};

}  // namespace bert

#endif  // NATIVE_LOOPS_H_
