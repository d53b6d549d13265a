#include "loops.h"

#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

// Loops are marked with OpenMP's `simd`: the compiler may process several elements at a time, and may add in
// any order.

namespace bert {
namespace {

inline float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float Load(float value) { return value; }
inline float Load(Bfloat16 value) { return FloatOf(static_cast<uint32_t>(value.bits) << 16); }

inline void Store(float value, float* target) { *target = value; }
inline void Store(float value, Bfloat16* target) {
  // Rounds to the nearest value, and in a tie to the even value. A NaN is handled separately, because the
  // upper 16 bits of a NaN could mean infinity.
  const uint32_t bits = BitsOf(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16, upper_half = (bits >> 16) | 0x40;
  target->bits = static_cast<uint16_t>(value == value ? rounded : upper_half);
}

// eˣ as 2ⁿ times a Taylor series, whose error is below 10⁻⁸ between -ln 2 / 2 and ln 2 / 2. The result is 0
// below -87, e⁸⁸ above 88, and NaN for NaN.
inline float Exp(float x) {
  const float bounded = x > 88.0f ? 88.0f : x < -87.0f ? -87.0f : x;
  // After adding 1.5 · 2²³, the lowest bits of the sum are the nearest integer.
  const float shifted = bounded * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const float rest = (bounded - n * 0.693145752f) - n * 1.42860677e-6f;
  float sum = 1.0f / 5040.0f;
  sum = sum * rest + 1.0f / 720.0f;
  sum = sum * rest + 1.0f / 120.0f;
  sum = sum * rest + 1.0f / 24.0f;
  sum = sum * rest + 1.0f / 6.0f;
  sum = sum * rest + 0.5f;
  sum = sum * rest + 1.0f;
  sum = sum * rest + 1.0f;
  const float power = FloatOf(BitsOf(sum) + (BitsOf(shifted) << 23));
  return x < -87.0f ? 0.0f : x == x ? power : x;
}

// Φ(x), the cumulative normal distribution, as 1/2 + x P(x²) / Q(x²), fitted between -5.5 and 5.5. The error
// is below 10⁻⁸ before rounding.
inline float Phi(float x) {
  const float bounded = x > 5.5f ? 5.5f : x < -5.5f ? -5.5f : x;
  const float t = bounded * bounded;
  float p = 2.27509644e-8f;
  p = p * t + 6.35181176e-6f;
  p = p * t + 1.68795652e-4f;
  p = p * t + 4.6770764e-3f;
  p = p * t + 3.3849806e-2f;
  p = p * t + 0.398942235f;
  float q = 1.1975283e-6f;
  q = q * t + 7.36373681e-5f;
  q = q * t + 1.88427502e-3f;
  q = q * t + 2.86442196e-2f;
  q = q * t + 0.251514802f;
  q = q * t + 1.0f;
  const float phi = 0.5f + bounded * (p / q);
  return x > 5.5f ? 1.0f : x < -5.5f ? 0.0f : phi;
}

constexpr float kLinear = 1.59576912f;             // √(8/π)
constexpr float kCubic = 0.044715f * 1.59576912f;  // of the tanh form: x σ(linear x + cubic x³)

// gelu(x) / x, the factor by which gelu multiplies x.
template <bool approximate>
inline float Gate(float x) {
  return approximate ? 1.0f / (1.0f + Exp(-x * (kLinear + kCubic * x * x))) : Phi(x);
}

// The derivative of x · gate.
template <bool approximate>
inline float Slope(float x, float gate) {
  if (approximate) return gate * (1.0f + (1.0f - gate) * (x * (kLinear + 3.0f * kCubic * x * x)));
  return gate + x * (Exp(-0.5f * x * x) * 0.398942280f);
}

template <bool approximate, typename T>
void GeluRow(int64_t width, const T* inputs, const float* bias, T* outputs) {
#pragma omp simd
  for (int64_t j = 0; j < width; ++j) {
    const float x = Load(inputs[j]) + (bias ? bias[j] : 0.0f);
    Store(x * Gate<approximate>(x), &outputs[j]);
  }
}

template <bool approximate, typename T>
void GeluGradientRow(int64_t width, const T* gradient, const T* inputs, const float* bias, T* input_gradient,
                     T* activation, float* bias_gradient) {
#pragma omp simd
  for (int64_t j = 0; j < width; ++j) {
    const float x = Load(inputs[j]) + (bias ? bias[j] : 0.0f);
    const float gate = Gate<approximate>(x);
    const float product = Load(gradient[j]) * Slope<approximate>(x, gate);
    bias_gradient[j] += product;
    Store(product, &input_gradient[j]);
    Store(x * gate, &activation[j]);
  }
}

// Only a loop without branches can process several elements at a time. So template parameters, and not
// branches in the loop, decide which optional arrays are used.
template <bool has_mask>
inline float Dropped(float value, const uint8_t* mask, int64_t index, float mask_scale) {
  if constexpr (!has_mask) return value;
  const float scaled = value * mask_scale;
  return mask[index] != 0 ? scaled : 0.0f;
}

// Calls f(std::true_type()) or f(std::false_type()).
template <typename F>
auto Choose(bool condition, const F& f) {
  return condition ? f(std::true_type()) : f(std::false_type());
}

// Computes the values of one row before the normalization, minus their mean. Returns 1 / their standard
// deviation.
template <bool has_bias, bool has_mask, bool has_residual, typename T>
float Center(const Norm<T>& norm, int64_t width, int64_t at, float* centered) {
  const T *inputs = norm.inputs + at, *residual = norm.residual + at;
  const uint8_t* mask = norm.mask + at;
  const float *bias = norm.bias, mask_scale = norm.mask_scale;
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < width; ++j) {
    float value = Load(inputs[j]);
    if constexpr (has_bias) value += bias[j];
    value = Dropped<has_mask>(value, mask, j, mask_scale);
    if constexpr (has_residual) value += Load(residual[j]);
    centered[j] = value;
    sum += value;
  }
  const float mean = sum / width;
  float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
  for (int64_t j = 0; j < width; ++j) {
    centered[j] -= mean;
    squares += centered[j] * centered[j];
  }
  return 1.0f / std::sqrt(squares / width + norm.epsilon);
}

template <typename T>
float CenterAny(const Norm<T>& norm, int64_t width, int64_t at, float* centered) {
  return Choose(norm.bias, [&](auto has_bias) {
    return Choose(norm.mask, [&](auto has_mask) {
      return Choose(norm.residual, [&](auto has_residual) {
        return Center<has_bias, has_mask, has_residual>(norm, width, at, centered);
      });
    });
  });
}

template <bool has_mask, typename T>
void NormGradientRow(const Norm<T>& norm, int64_t width, int64_t at, const T* gradient, T* residual_gradient,
                     T* input_gradient, float* bias_gradient, float* gamma_gradient, float* beta_gradient,
                     float* normalized, float* scaled) {
  const float inverse_deviation = CenterAny(norm, width, at, normalized);
  const float *gamma = norm.gamma, mask_scale = norm.mask_scale;
  float sum = 0.0f, products = 0.0f;
#pragma omp simd reduction(+ : sum, products)
  for (int64_t j = 0; j < width; ++j) {
    const float from_above = Load(gradient[j]), value = normalized[j] * inverse_deviation;
    gamma_gradient[j] += from_above * value;
    beta_gradient[j] += from_above;
    normalized[j] = value;
    scaled[j] = from_above * gamma[j];
    sum += scaled[j];
    products += scaled[j] * value;
  }
  const float mean = sum / width, slope = products / width;
#pragma omp simd
  for (int64_t j = 0; j < width; ++j) {
    const float value = inverse_deviation * (scaled[j] - mean - normalized[j] * slope);
    const float dropped = Dropped<has_mask>(value, norm.mask + at, j, mask_scale);
    bias_gradient[j] += dropped;
    Store(value, &residual_gradient[j]);
    Store(dropped, &input_gradient[j]);
  }
}

// The rows of a softmax are short. A loop over values of less than 32 bits processes more elements at a time
// than a short row has. So such a loop runs over kRowsAtOnce rows at once, and loops over a single row contain
// only floats.
constexpr int64_t kRowsAtOnce = 16;

template <bool has_mask, typename T>
void SoftmaxRows(Rows rows, const T* scores, const BroadcastRows& bias, const uint8_t* mask, float scale,
                 float mask_scale, T* dropped, T* probabilities, float* buffer) {
  const int64_t width = rows.width, first = rows.begin * width, size = rows.end * width - first;
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) buffer[i] = Load(scores[first + i]) * scale;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    float* values = buffer + row * width - first;
    const float* added = bias.Row(row);
    float largest = -INFINITY;
#pragma omp simd reduction(max : largest)
    for (int64_t j = 0; j < width; ++j) {
      values[j] += added ? added[j] : 0.0f;
      largest = values[j] > largest ? values[j] : largest;
    }
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) values[j] -= largest;
  }
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) buffer[i] = Exp(buffer[i]);
  for (int64_t begin = 0; begin < size; begin += width) {
    float *values = buffer + begin, sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < width; ++j) sum += values[j];
    const float inverse = 1.0f / sum;
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) values[j] *= inverse;
  }
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) {
    Store(buffer[i], &probabilities[first + i]);
    if constexpr (has_mask) Store(Dropped<true>(buffer[i], mask, first + i, mask_scale), &dropped[first + i]);
  }
}

// buffer: two arrays [kRowsAtOnce, width].
template <bool has_mask, typename T>
void SoftmaxGradientRows(Rows rows, const T* gradient, const T* probabilities, const uint8_t* mask,
                         float scale, float mask_scale, T* score_gradient, T* dropped, float* buffer) {
  const int64_t width = rows.width, first = rows.begin * width, size = rows.end * width - first;
  float* others = buffer + kRowsAtOnce * width;
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) {
    buffer[i] = Dropped<has_mask>(Load(gradient[first + i]), mask, first + i, mask_scale);
    others[i] = Load(probabilities[first + i]);
  }
  for (int64_t begin = 0; begin < size; begin += width) {
    float *values = buffer + begin, *factors = others + begin, sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < width; ++j) sum += values[j] * factors[j];
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) values[j] = factors[j] * (values[j] - sum) * scale;
  }
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) {
    Store(buffer[i], &score_gradient[first + i]);
    if constexpr (has_mask) Store(Dropped<true>(others[i], mask, first + i, mask_scale), &dropped[first + i]);
  }
}

// Calls f for each group of at most kRowsAtOnce rows, one group after the other.
template <typename F>
void SomeAtOnce(Rows rows, const F& f) {
  for (int64_t row = rows.begin; row < rows.end; row += kRowsAtOnce) {
    f(Rows{row, row + kRowsAtOnce < rows.end ? row + kRowsAtOnce : rows.end, rows.width});
  }
}

}  // namespace

template <typename T>
void Gelu(Rows rows, bool approximate, const T* inputs, const float* bias, T* outputs) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t at = row * rows.width;
    (approximate ? GeluRow<true, T> : GeluRow<false, T>)(rows.width, inputs + at, bias, outputs + at);
  }
}

template <typename T>
void GeluGradient(Rows rows, bool approximate, const T* gradient, const T* inputs, const float* bias,
                  T* input_gradient, T* activation, float* bias_gradient) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t at = row * rows.width;
    (approximate ? GeluGradientRow<true, T> : GeluGradientRow<false, T>)(
        rows.width, gradient + at, inputs + at, bias, input_gradient + at, activation + at, bias_gradient);
  }
}

template <typename T>
void Norm<T>::Forward(Rows rows, T* outputs) const {
  std::vector<float> buffer(rows.width);
  float* values = buffer.data();
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t at = row * rows.width;
    const float inverse_deviation = CenterAny(*this, rows.width, at, values);
#pragma omp simd
    for (int64_t j = 0; j < rows.width; ++j) {
      Store(values[j] * inverse_deviation * gamma[j] + beta[j], &outputs[at + j]);
    }
  }
}

template <typename T>
void Norm<T>::Backward(Rows rows, const T* gradient, T* residual_gradient, T* input_gradient,
                       float* bias_gradient, float* gamma_gradient, float* beta_gradient) const {
  std::vector<float> buffer(2 * rows.width);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t at = row * rows.width;
    (mask ? NormGradientRow<true, T> : NormGradientRow<false, T>)(
        *this, rows.width, at, gradient + at, residual_gradient + at, input_gradient + at, bias_gradient,
        gamma_gradient, beta_gradient, buffer.data(), buffer.data() + rows.width);
  }
}

template <typename T>
void Softmax(Rows rows, const T* scores, const BroadcastRows& bias, const uint8_t* mask, float scale,
             float mask_scale, T* dropped, T* probabilities) {
  std::vector<float> buffer(kRowsAtOnce * rows.width);
  SomeAtOnce(rows, [&](Rows some) {
    (mask ? SoftmaxRows<true, T> : SoftmaxRows<false, T>)(
        some, scores, bias, mask, scale, mask_scale, dropped, probabilities, buffer.data());
  });
}

template <typename T>
void SoftmaxGradient(Rows rows, const T* gradient, const T* probabilities, const uint8_t* mask, float scale,
                     float mask_scale, T* score_gradient, T* dropped) {
  std::vector<float> buffer(2 * kRowsAtOnce * rows.width);
  SomeAtOnce(rows, [&](Rows some) {
    (mask ? SoftmaxGradientRows<true, T> : SoftmaxGradientRows<false, T>)(
        some, gradient, probabilities, mask, scale, mask_scale, score_gradient, dropped, buffer.data());
  });
}

template <typename T>
void Heads<T>::Split(int64_t begin, int64_t end, const T* rows, int64_t row_count, const int32_t* row_of,
                     T* const* outputs) const {
  for (int64_t position = begin; position < end; ++position) {
    const int64_t row = row_of ? row_of[position] : position, b = position / length, f = position % length;
    const T* source = rows + row * number * heads * size;
    for (int64_t index = 0; index < number; ++index) {
      for (int64_t n = 0; n < heads; ++n, source += size) {
        T* target = outputs[index] + ((b * heads + n) * length + f) * size;
        if (row >= 0 && row < row_count) {
          std::memcpy(target, source, size * sizeof(T));
        } else {
          std::memset(target, 0, size * sizeof(T));
        }
      }
    }
  }
}

template <typename T>
void Heads<T>::Merge(int64_t begin, int64_t end, const T* const* inputs, const int64_t* places,
                     T* rows) const {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t b = places ? places[2 * row] : row / length;
    const int64_t f = places ? places[2 * row + 1] : row % length;
    T* target = rows + row * number * heads * size;
    for (int64_t index = 0; index < number; ++index) {
      for (int64_t n = 0; n < heads; ++n, target += size) {
        std::memcpy(target, inputs[index] + ((b * heads + n) * length + f) * size, size * sizeof(T));
      }
    }
  }
}

void DropoutMask(uint64_t key, uint64_t counter_low, uint64_t counter_high, int64_t begin, int64_t end,
                 int64_t size, int16_t threshold, uint8_t* mask) {
  constexpr int kLanes = 32, kRounds = 10, kPerBlock = 8;
  for (int64_t first = begin; first < end; first += kLanes) {
    uint32_t words[4][kLanes];
#pragma omp simd
    for (int lane = 0; lane < kLanes; ++lane) {
      const uint64_t low = counter_low + first + lane, high = counter_high + (low < counter_low);
      // The variables have 64 bits, but only the lower 32 bits are words of the block. The upper 32 bits may
      // contain a part of a product. With 32-bit variables, the compiler would have to reorder the elements of
      // vectors.
      uint64_t word_0 = low, word_1 = low >> 32, word_2 = high, word_3 = high >> 32;
      uint32_t key_0 = static_cast<uint32_t>(key), key_1 = static_cast<uint32_t>(key >> 32);
#pragma GCC unroll 10
      for (int round = 0; round < kRounds; ++round) {
        const uint64_t left = (word_0 & 0xffffffffu) * 0xD2511F53u;
        const uint64_t right = (word_2 & 0xffffffffu) * 0xCD9E8D57u;
        word_0 = (right >> 32) ^ word_1 ^ key_0;
        word_2 = (left >> 32) ^ word_3 ^ key_1;
        word_1 = right;
        word_3 = left;
        key_0 += 0x9E3779B9u;
        key_1 += 0xBB67AE85u;
      }
      words[0][lane] = static_cast<uint32_t>(word_0);
      words[1][lane] = static_cast<uint32_t>(word_1);
      words[2][lane] = static_cast<uint32_t>(word_2);
      words[3][lane] = static_cast<uint32_t>(word_3);
    }
    uint32_t in_order[kLanes * 4];
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int word = 0; word < 4; ++word) in_order[4 * lane + word] = words[word][lane];
    }
    int16_t numbers[kLanes * kPerBlock];
    std::memcpy(numbers, in_order, sizeof numbers);
    uint8_t booleans[kLanes * kPerBlock];
#pragma omp simd
    for (int i = 0; i < kLanes * kPerBlock; ++i) booleans[i] = numbers[i] >= threshold;
    const int64_t at = first * kPerBlock, last = (end < first + kLanes ? end : first + kLanes) * kPerBlock;
    std::memcpy(mask + at, booleans, (last < size ? last : size) - at);
  }
}

void AdamW::Update(int64_t begin, int64_t end, const float* gradient, const float* old_w, const float* old_m,
                   const float* old_v, float* w, float* m, float* v) const {
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const float slope = gradient[i] * factor;
    const float new_m = old_m[i] + (1.0f - beta_1) * (slope - old_m[i]);
    const float new_v = old_v[i] + (1.0f - beta_2) * (slope * slope - old_v[i]);
    w[i] = old_w[i] - decay * old_w[i] - rate * new_m / (std::sqrt(new_v) + epsilon);
    m[i] = new_m;
    v[i] = new_v;
  }
}

#define FOR_DTYPE(T)                                                                                    \
  template void Gelu<T>(Rows, bool, const T*, const float*, T*);                                        \
  template void GeluGradient<T>(Rows, bool, const T*, const T*, const float*, T*, T*, float*);          \
  template struct Norm<T>;                                                                              \
  template struct Heads<T>;                                                                             \
  template void Softmax<T>(Rows, const T*, const BroadcastRows&, const uint8_t*, float, float, T*, T*); \
  template void SoftmaxGradient<T>(Rows, const T*, const T*, const uint8_t*, float, float, T*, T*);
FOR_DTYPE(float)
FOR_DTYPE(Bfloat16)

}  // namespace bert
