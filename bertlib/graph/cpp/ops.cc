// Defines TensorFlow's ops "Bert…" for CPUs, which call the loops in loops.h. `formulas.py` documents the
// functions that the ops compute. An optional input is a list of at most one tensor.

#include <algorithm>
#include <type_traits>
#include <vector>

#include "loops.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/util/work_sharder.h"

namespace bert {
namespace {

using tensorflow::DT_FLOAT;
using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// Number of rows that one thread adds up. This number is constant, because the order of additions must not
// depend on the number of threads.
constexpr int64_t kRowsPerBlock = 64;
// Approximate cycles of a simple operation on one element. From this number, TensorFlow chooses the number of
// threads.
constexpr int64_t kCyclesPerElement = 2;

// The type T of loops.h for a type of TensorFlow.
template <typename T>
using Element = std::conditional_t<std::is_same_v<T, float>, float,
                                   std::conditional_t<std::is_same_v<T, bool>, uint8_t, Bfloat16>>;

template <typename T>
const Element<T>* Read(const Tensor& tensor) {
  return reinterpret_cast<const Element<T>*>(tensor.flat<T>().data());
}

template <typename T>
Element<T>* Write(Tensor* tensor) {
  return reinterpret_cast<Element<T>*>(tensor->flat<T>().data());
}

// Calls work(begin, end) for parts of [0, total), in several threads if the number of elements is large enough.
template <typename Work>
void InParallel(OpKernelContext* context, int64_t total, int64_t elements_each, const Work& work) {
  const auto& threads = *context->device()->tensorflow_cpu_worker_threads();
  tensorflow::Shard(threads.num_threads, threads.workers, total, elements_each * kCyclesPerElement, work);
}

// Returns the tensor of an optional input, or null.
const Tensor* Optional(OpKernelContext* context, const char* name) {
  OpInputList list;
  context->input_list(name, &list).IgnoreError();  // no error is possible: the op has an input `name`
  return list.size() ? &list[0] : nullptr;
}

template <typename T>
const Element<T>* OptionalData(OpKernelContext* context, const char* name, int64_t size) {
  const Tensor* tensor = Optional(context, name);
  if (!tensor) return nullptr;
  if (tensor->NumElements() != size) {
    context->CtxFailure(absl::InvalidArgumentError(
        absl::StrCat(name, " has ", tensor->NumElements(), " elements, not ", size)));
  }
  return Read<T>(*tensor);
}

// Returns the length of a tensor's rows, which is the size of its last dimension.
int64_t Width(const Tensor& tensor) { return tensor.dims() ? tensor.dim_size(tensor.dims() - 1) : 1; }

// Calls work(rows, sums [number, width]) for each block of rows. Writes the totals of the sums to `number`
// outputs [width], beginning with the output `first`.
template <typename Work>
void InBlocks(OpKernelContext* context, int64_t rows, int64_t width, int64_t number, int first,
              const Work& work) {
  const int64_t blocks = (rows + kRowsPerBlock - 1) / kRowsPerBlock;
  std::vector<float> sums(blocks * number * width);
  InParallel(context, blocks, kRowsPerBlock * width, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      work(Rows{block * kRowsPerBlock, std::min(rows, (block + 1) * kRowsPerBlock), width},
           sums.data() + block * number * width);
    }
  });
  for (int64_t index = 0; index < number; ++index) {
    Tensor* output;
    OP_REQUIRES_OK(context, context->allocate_output(first + index, {width}, &output));
    float* total = output->flat<float>().data();
    std::fill_n(total, width, 0.0f);
    for (int64_t block = 0; block < blocks; ++block) {
      const float* part = sums.data() + (block * number + index) * width;
      for (int64_t j = 0; j < width; ++j) total[j] += part[j];
    }
  }
}

class GeluBase : public OpKernel {
 public:
  explicit GeluBase(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("approximate", &approximate_));
  }

 protected:
  bool approximate_;
};

template <typename T>
class GeluOp : public GeluBase {
 public:
  using GeluBase::GeluBase;

  void Compute(OpKernelContext* context) override {
    const Tensor& inputs = context->input(0);
    const int64_t width = Width(inputs);
    const float* bias = OptionalData<float>(context, "bias", width);
    Tensor* outputs;
    OP_REQUIRES_OK(context, context->allocate_output(0, inputs.shape(), &outputs));
    if (!context->status().ok() || !inputs.NumElements()) return;
    InParallel(context, inputs.NumElements() / width, width, [&](int64_t begin, int64_t end) {
      Gelu(Rows{begin, end, width}, approximate_, Read<T>(inputs), bias, Write<T>(outputs));
    });
  }
};

template <typename T>
class GeluGradientOp : public GeluBase {
 public:
  using GeluBase::GeluBase;

  void Compute(OpKernelContext* context) override {
    const Tensor &gradient = context->input(0), &inputs = context->input(1);
    const int64_t width = Width(inputs);
    const float* bias = OptionalData<float>(context, "bias", width);
    OP_REQUIRES(context, gradient.shape() == inputs.shape(),
                absl::InvalidArgumentError("gradient and inputs differ in shape"));
    Tensor *input_gradient, *activation;
    OP_REQUIRES_OK(context,
                   context->forward_input_or_allocate_output({0}, 0, inputs.shape(), &input_gradient));
    OP_REQUIRES_OK(context, context->allocate_output(1, inputs.shape(), &activation));
    if (!context->status().ok()) return;
    InBlocks(context, width ? inputs.NumElements() / width : 0, width, 1, 2, [&](Rows rows, float* sums) {
      GeluGradient(rows, approximate_, Read<T>(gradient), Read<T>(inputs), bias, Write<T>(input_gradient),
                   Write<T>(activation), sums);
    });
  }
};

template <typename T>
class NormBase : public OpKernel {
 public:
  explicit NormBase(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("mask_scale", &mask_scale_));
    OP_REQUIRES_OK(context, context->GetAttr("epsilon", &epsilon_));
  }

 protected:
  // Returns the loops for these inputs. If the inputs do not fit, the context's status is an error.
  Norm<Element<T>> LoopsFor(OpKernelContext* context, const Tensor& inputs, const Tensor& gamma) const {
    const int64_t size = inputs.NumElements(), width = Width(inputs);
    if (gamma.NumElements() != width) {
      context->CtxFailure(absl::InvalidArgumentError("gamma has not the inputs' width"));
    }
    return {Read<T>(inputs),
            OptionalData<float>(context, "bias", width),
            OptionalData<T>(context, "residual", size),
            OptionalData<bool>(context, "mask", size),
            Read<float>(gamma),
            nullptr,
            mask_scale_,
            epsilon_};
  }

 private:
  float mask_scale_, epsilon_;
};

template <typename T>
class NormOp : public NormBase<T> {
 public:
  using NormBase<T>::NormBase;

  void Compute(OpKernelContext* context) override {
    const Tensor &inputs = context->input(0), *gamma, *beta;
    OP_REQUIRES_OK(context, context->input("gamma", &gamma));
    OP_REQUIRES_OK(context, context->input("beta", &beta));
    const int64_t width = Width(inputs);
    Norm<Element<T>> loops = this->LoopsFor(context, inputs, *gamma);
    OP_REQUIRES(context, beta->NumElements() == width,
                absl::InvalidArgumentError("beta has not the inputs' width"));
    loops.beta = Read<float>(*beta);
    Tensor* outputs;
    OP_REQUIRES_OK(context, context->allocate_output(0, inputs.shape(), &outputs));
    if (!context->status().ok() || !inputs.NumElements()) return;
    InParallel(context, inputs.NumElements() / width, 2 * width, [&](int64_t begin, int64_t end) {
      loops.Forward(Rows{begin, end, width}, Write<T>(outputs));
    });
  }
};

template <typename T>
class NormGradientOp : public NormBase<T> {
 public:
  using NormBase<T>::NormBase;

  void Compute(OpKernelContext* context) override {
    const Tensor &gradient = context->input(0), &inputs = context->input(1), *gamma;
    OP_REQUIRES_OK(context, context->input("gamma", &gamma));
    OP_REQUIRES(context, gradient.shape() == inputs.shape(),
                absl::InvalidArgumentError("gradient and inputs differ in shape"));
    const int64_t width = Width(inputs);
    const Norm<Element<T>> loops = this->LoopsFor(context, inputs, *gamma);
    Tensor *residual_gradient, *input_gradient;
    OP_REQUIRES_OK(context,
                   context->forward_input_or_allocate_output({0}, 0, inputs.shape(), &residual_gradient));
    if (loops.mask) {
      OP_REQUIRES_OK(context, context->allocate_output(1, inputs.shape(), &input_gradient));
    } else {
      context->set_output(1, *residual_gradient);
      input_gradient = residual_gradient;
    }
    if (!context->status().ok()) return;
    InBlocks(context, width ? inputs.NumElements() / width : 0, width, 3, 2, [&](Rows rows, float* sums) {
      loops.Backward(rows, Read<T>(gradient), Write<T>(residual_gradient), Write<T>(input_gradient),
                     sums, sums + width, sums + 2 * width);
    });
  }
};

class SoftmaxBase : public OpKernel {
 public:
  explicit SoftmaxBase(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("scale", &scale_));
    OP_REQUIRES_OK(context, context->GetAttr("mask_scale", &mask_scale_));
  }

 protected:
  float scale_, mask_scale_;
};

template <typename T>
class SoftmaxOp : public SoftmaxBase {
 public:
  using SoftmaxBase::SoftmaxBase;

  void Compute(OpKernelContext* context) override {
    const Tensor& scores = context->input(0);
    const int64_t size = scores.NumElements(), width = Width(scores);
    const uint8_t* mask = OptionalData<bool>(context, "mask", size);
    const Tensor* bias = Optional(context, "score_bias");
    OP_REQUIRES(context, scores.dims() == 4, absl::InvalidArgumentError("scores must have 4 dimensions"));
    BroadcastRows rows{bias ? Read<float>(*bias) : nullptr,
                       {scores.dim_size(0), scores.dim_size(1), scores.dim_size(2)},
                       {}};
    if (bias) {
      bool fits = bias->dims() == 4 && Width(*bias) == width;
      for (int64_t i = 2, step = width; fits && i >= 0; step *= bias->dim_size(i--)) {
        fits = bias->dim_size(i) == 1 || bias->dim_size(i) == rows.sizes[i];
        rows.steps[i] = bias->dim_size(i) == 1 ? 0 : step;
      }
      OP_REQUIRES(context, fits, absl::InvalidArgumentError(absl::StrCat(
          "score_bias of ", bias->shape().DebugString(), " does not fit scores of ",
          scores.shape().DebugString())));
    }
    Tensor *dropped, *probabilities;
    OP_REQUIRES_OK(context,
                   context->forward_input_or_allocate_output({0}, 1, scores.shape(), &probabilities));
    if (mask) {
      OP_REQUIRES_OK(context, context->allocate_output(0, scores.shape(), &dropped));
    } else {
      context->set_output(0, *probabilities);
      dropped = probabilities;
    }
    if (!context->status().ok() || !size) return;
    InParallel(context, size / width, 3 * width, [&](int64_t begin, int64_t end) {
      Softmax(Rows{begin, end, width}, Read<T>(scores), rows, mask, scale_, mask_scale_, Write<T>(dropped),
              Write<T>(probabilities));
    });
  }
};

template <typename T>
class SoftmaxGradientOp : public SoftmaxBase {
 public:
  using SoftmaxBase::SoftmaxBase;

  void Compute(OpKernelContext* context) override {
    const Tensor &gradient = context->input(0), &probabilities = context->input(1);
    const int64_t size = gradient.NumElements(), width = Width(gradient);
    const uint8_t* mask = OptionalData<bool>(context, "mask", size);
    OP_REQUIRES(context, gradient.shape() == probabilities.shape(),
                absl::InvalidArgumentError("gradient and probabilities differ in shape"));
    Tensor *score_gradient, *dropped = nullptr;
    OP_REQUIRES_OK(context,
                   context->forward_input_or_allocate_output({0}, 0, gradient.shape(), &score_gradient));
    if (mask) {
      OP_REQUIRES_OK(context, context->allocate_output(1, gradient.shape(), &dropped));
    } else {
      context->set_output(1, probabilities);
    }
    if (!context->status().ok() || !size) return;
    InParallel(context, size / width, 2 * width, [&](int64_t begin, int64_t end) {
      SoftmaxGradient(Rows{begin, end, width}, Read<T>(gradient), Read<T>(probabilities), mask, scale_,
                      mask_scale_, Write<T>(score_gradient), mask ? Write<T>(dropped) : nullptr);
    });
  }
};

template <typename T>
class SplitHeadsOp : public OpKernel {
 public:
  explicit SplitHeadsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("heads", &heads_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor &rows = context->input(0), *shape;
    OP_REQUIRES_OK(context, context->input("shape", &shape));
    const Tensor* row_of = Optional(context, "row_of");
    const auto sizes = shape->flat<tensorflow::int32>();
    const int64_t number = context->num_outputs(), positions = static_cast<int64_t>(sizes(0)) * sizes(1);
    const int64_t row_count = rows.dim_size(0), size = Width(rows) / (number * heads_);
    OP_REQUIRES(context, size * number * heads_ == Width(rows) &&
                             (row_of ? row_of->NumElements() : row_count) == positions,
                absl::InvalidArgumentError(absl::StrCat(
                    "rows of ", rows.shape().DebugString(), " have no place at ", positions, " positions of ",
                    number, " times ", heads_, " heads")));
    std::vector<Element<T>*> outputs;
    for (int i = 0; i < number; ++i) {
      Tensor* output;
      OP_REQUIRES_OK(context, context->allocate_output(i, {sizes(0), heads_, sizes(1), size}, &output));
      outputs.push_back(Write<T>(output));
    }
    const Heads<Element<T>> loops{number, heads_, sizes(1), size};
    InParallel(context, positions, Width(rows), [&](int64_t begin, int64_t end) {
      loops.Split(begin, end, Read<T>(rows), row_count,
                  row_of ? row_of->flat<tensorflow::int32>().data() : nullptr, outputs.data());
    });
  }

 private:
  tensorflow::int64 heads_;
};

template <typename T>
class MergeHeadsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    OpInputList inputs;
    OP_REQUIRES_OK(context, context->input_list("inputs", &inputs));
    const Tensor& first = inputs[0];
    OP_REQUIRES(context, first.dims() == 4, absl::InvalidArgumentError("inputs must have 4 dimensions"));
    std::vector<const Element<T>*> sources;
    for (const Tensor& input : inputs) {
      OP_REQUIRES(context, input.shape() == first.shape(),
                  absl::InvalidArgumentError("inputs differ in shape"));
      sources.push_back(Read<T>(input));
    }
    const Heads<Element<T>> loops{inputs.size(), first.dim_size(1), first.dim_size(2), first.dim_size(3)};
    const int64_t batch = first.dim_size(0), width = loops.number * loops.heads * loops.size;
    const Tensor* places = Optional(context, "places");
    const int64_t rows = places ? places->dim_size(0) : batch * loops.length;
    for (int64_t row = 0; places && row < rows; ++row) {
      const auto place = places->matrix<tensorflow::int64>();
      OP_REQUIRES(context, place(row, 0) >= 0 && place(row, 0) < batch && place(row, 1) >= 0 &&
                               place(row, 1) < loops.length,
                  absl::InvalidArgumentError(absl::StrCat("row ", row, " is at no position of the inputs")));
    }
    Tensor* output;
    OP_REQUIRES_OK(context, context->allocate_output(0, {rows, width}, &output));
    InParallel(context, rows, width, [&](int64_t begin, int64_t end) {
      loops.Merge(begin, end, sources.data(),
                  places ? reinterpret_cast<const int64_t*>(places->flat<tensorflow::int64>().data())
                         : nullptr,
                  Write<T>(output));
    });
  }
};

class DropoutMaskOp : public OpKernel {
 public:
  explicit DropoutMaskOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("threshold", &threshold_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor &key = context->input(1), &counter = context->input(2);
    tensorflow::TensorShape shape;
    const auto sizes = context->input(0).flat<tensorflow::int32>();
    OP_REQUIRES_OK(context, tensorflow::TensorShapeUtils::MakeShape(sizes.data(), sizes.size(), &shape));
    OP_REQUIRES(context, key.NumElements() == 1 && counter.NumElements() == 2,
                absl::InvalidArgumentError("a stream has one key and a counter of two numbers"));
    Tensor* mask;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &mask));
    const int64_t size = shape.num_elements(), blocks = (size + 7) / 8;
    uint8_t* values = Write<bool>(mask);
    InParallel(context, blocks, 16, [&](int64_t begin, int64_t end) {
      DropoutMask(key.flat<tensorflow::uint64>()(0), counter.flat<tensorflow::uint64>()(0),
                  counter.flat<tensorflow::uint64>()(1), begin, end, size, static_cast<int16_t>(threshold_),
                  values);
    });
  }

 private:
  tensorflow::int64 threshold_;
};

class AdamWOp : public OpKernel {
 public:
  explicit AdamWOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("beta_1", &beta_1_));
    OP_REQUIRES_OK(context, context->GetAttr("beta_2", &beta_2_));
    OP_REQUIRES_OK(context, context->GetAttr("epsilon", &epsilon_));
  }

  void Compute(OpKernelContext* context) override {
    tensorflow::core::RefCountPtr<tensorflow::Var> variables[3];
    for (int i = 0; i < 3; ++i) {
      OP_REQUIRES_OK(context, tensorflow::LookupResource(context, tensorflow::HandleFromInput(context, i),
                                                         &variables[i]));
    }
    const Tensor& gradient = context->input(3);
    tensorflow::mutex_lock lock_w(*variables[0]->mu()), lock_m(*variables[1]->mu()),
        lock_v(*variables[2]->mu());
    Tensor old_values[3], new_values[3];
    for (int i = 0; i < 3; ++i) {
      Tensor* held = variables[i]->tensor();
      OP_REQUIRES(context, held->dtype() == DT_FLOAT && held->shape() == gradient.shape(),
                  absl::InvalidArgumentError("variable, slots and gradient differ in shape"));
      // The new values are written in place, unless another op still reads the old values.
      if (held->RefCountIsOne()) {
        new_values[i] = *held;
      } else {
        OP_REQUIRES_OK(context, context->allocate_temp(DT_FLOAT, held->shape(), &new_values[i]));
      }
      old_values[i] = *held;
    }
    for (int i = 4; i < 7; ++i) {
      OP_REQUIRES(context, context->input(i).NumElements() == 1,
                  absl::InvalidArgumentError("factor, rate and decay are scalars"));
    }
    const auto scalar = [context](int index) { return context->input(index).flat<float>()(0); };
    const AdamW loops{scalar(4), scalar(5), scalar(6), beta_1_, beta_2_, epsilon_};
    InParallel(context, gradient.NumElements(), 8, [&](int64_t begin, int64_t end) {
      loops.Update(begin, end, Read<float>(gradient), Read<float>(old_values[0]), Read<float>(old_values[1]),
                   Read<float>(old_values[2]), Write<float>(&new_values[0]), Write<float>(&new_values[1]),
                   Write<float>(&new_values[2]));
    });
    for (int i = 0; i < 3; ++i) *variables[i]->tensor() = new_values[i];
  }

 private:
  float beta_1_, beta_2_, epsilon_;
};

// The outputs [0, same) have the shape of the input `of`. The other outputs are vectors with the length of
// the last dimension of `of`.
auto ShapedLike(int of, int same) {
  return [of, same](InferenceContext* context) {
    const ShapeHandle shape = context->input(of);
    for (int i = 0; i < context->num_outputs(); ++i) {
      context->set_output(i, i < same ? shape
                                      : context->Vector(context->RankKnown(shape) ? context->Dim(shape, -1)
                                                                                  : context->UnknownDim()));
    }
    return absl::OkStatus();
  };
}

REGISTER_OP("BertGelu")
    .Input("inputs: T").Input("bias: has_bias * float").Output("outputs: T")
    .Attr("T: {float, bfloat16}").Attr("has_bias: int >= 0").Attr("approximate: bool")
    .SetShapeFn(ShapedLike(0, 1));
REGISTER_OP("BertGeluGradient")
    .Input("gradient: T").Input("inputs: T").Input("bias: has_bias * float")
    .Output("input_gradient: T").Output("activation: T").Output("bias_gradient: float")
    .Attr("T: {float, bfloat16}").Attr("has_bias: int >= 0").Attr("approximate: bool")
    .SetShapeFn(ShapedLike(1, 2));
REGISTER_OP("BertNorm")
    .Input("inputs: T").Input("bias: has_bias * float").Input("residual: has_residual * T")
    .Input("mask: has_mask * bool").Input("gamma: float").Input("beta: float")
    .Output("outputs: T")
    .Attr("T: {float, bfloat16}")
    .Attr("has_bias: int >= 0").Attr("has_residual: int >= 0").Attr("has_mask: int >= 0")
    .Attr("mask_scale: float").Attr("epsilon: float")
    .SetShapeFn(ShapedLike(0, 1));
REGISTER_OP("BertNormGradient")
    .Input("gradient: T").Input("inputs: T").Input("bias: has_bias * float")
    .Input("residual: has_residual * T").Input("mask: has_mask * bool").Input("gamma: float")
    .Output("residual_gradient: T").Output("input_gradient: T")
    .Output("bias_gradient: float").Output("gamma_gradient: float").Output("beta_gradient: float")
    .Attr("T: {float, bfloat16}")
    .Attr("has_bias: int >= 0").Attr("has_residual: int >= 0").Attr("has_mask: int >= 0")
    .Attr("mask_scale: float").Attr("epsilon: float")
    .SetShapeFn(ShapedLike(1, 2));
REGISTER_OP("BertSoftmax")
    .Input("scores: T").Input("score_bias: has_bias * float").Input("mask: has_mask * bool")
    .Output("dropped: T").Output("probabilities: T")
    .Attr("T: {float, bfloat16}").Attr("has_bias: int >= 0").Attr("has_mask: int >= 0")
    .Attr("scale: float").Attr("mask_scale: float")
    .SetShapeFn(ShapedLike(0, 2));
REGISTER_OP("BertSoftmaxGradient")
    .Input("gradient: T").Input("probabilities: T").Input("mask: has_mask * bool")
    .Output("score_gradient: T").Output("dropped: T")
    .Attr("T: {float, bfloat16}").Attr("has_mask: int >= 0").Attr("scale: float").Attr("mask_scale: float")
    .SetShapeFn(ShapedLike(0, 2));
REGISTER_OP("BertSplitHeads")
    .Input("rows: T").Input("row_of: has_row_of * int32").Input("shape: int32")
    .Output("outputs: number * T")
    .Attr("T: {float, bfloat16}").Attr("has_row_of: int >= 0")
    .Attr("number: int >= 1").Attr("heads: int >= 1")
    .SetShapeFn([](InferenceContext* context) {
      ShapeHandle rows, positions;
      TF_RETURN_IF_ERROR(context->WithRank(context->input(0), 2, &rows));
      TF_RETURN_IF_ERROR(context->MakeShapeFromShapeTensor(context->num_inputs() - 1, &positions));
      TF_RETURN_IF_ERROR(context->WithRank(positions, 2, &positions));
      tensorflow::int64 heads;
      TF_RETURN_IF_ERROR(context->GetAttr("heads", &heads));
      tensorflow::shape_inference::DimensionHandle size;
      TF_RETURN_IF_ERROR(context->Divide(context->Dim(rows, 1), heads * context->num_outputs(), true, &size));
      for (int i = 0; i < context->num_outputs(); ++i) {
        context->set_output(i, context->MakeShape({context->Dim(positions, 0), context->MakeDim(heads),
                                                   context->Dim(positions, 1), size}));
      }
      return absl::OkStatus();
    });
REGISTER_OP("BertMergeHeads")
    .Input("inputs: number * T").Input("places: has_places * int64").Output("rows: T")
    .Attr("T: {float, bfloat16}").Attr("has_places: int >= 0").Attr("number: int >= 1")
    .SetShapeFn([](InferenceContext* context) {
      ShapeHandle input;
      TF_RETURN_IF_ERROR(context->WithRank(context->input(0), 4, &input));
      int number;
      TF_RETURN_IF_ERROR(context->GetAttr("number", &number));
      tensorflow::shape_inference::DimensionHandle rows, width;
      if (context->num_inputs() > number) {
        rows = context->Dim(context->input(number), 0);
      } else {
        TF_RETURN_IF_ERROR(context->Multiply(context->Dim(input, 0), context->Dim(input, 2), &rows));
      }
      TF_RETURN_IF_ERROR(context->Multiply(context->Dim(input, 1), context->Dim(input, 3), &width));
      TF_RETURN_IF_ERROR(context->Multiply(width, number, &width));
      context->set_output(0, context->Matrix(rows, width));
      return absl::OkStatus();
    });
REGISTER_OP("BertDropoutMask")
    .Input("shape: int32").Input("key: uint64").Input("counter: uint64").Output("mask: bool")
    .Attr("threshold: int")
    .SetShapeFn([](InferenceContext* context) {
      ShapeHandle shape;
      TF_RETURN_IF_ERROR(context->MakeShapeFromShapeTensor(0, &shape));
      context->set_output(0, shape);
      return absl::OkStatus();
    });
REGISTER_OP("BertAdamW")
    .Input("variable: resource").Input("m: resource").Input("v: resource").Input("gradient: float")
    .Input("factor: float").Input("rate: float").Input("decay: float")
    .Attr("beta_1: float").Attr("beta_2: float").Attr("epsilon: float")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);

#define FOR_DTYPE(NAME, CLASS)                                                                 \
  REGISTER_KERNEL_BUILDER(                                                                     \
      Name(NAME).Device(tensorflow::DEVICE_CPU).TypeConstraint<float>("T"), CLASS<float>);     \
  REGISTER_KERNEL_BUILDER(                                                                     \
      Name(NAME).Device(tensorflow::DEVICE_CPU).TypeConstraint<tensorflow::bfloat16>("T"),     \
      CLASS<tensorflow::bfloat16>)
FOR_DTYPE("BertGelu", GeluOp);
FOR_DTYPE("BertGeluGradient", GeluGradientOp);
FOR_DTYPE("BertNorm", NormOp);
FOR_DTYPE("BertNormGradient", NormGradientOp);
FOR_DTYPE("BertSoftmax", SoftmaxOp);
FOR_DTYPE("BertSoftmaxGradient", SoftmaxGradientOp);
FOR_DTYPE("BertSplitHeads", SplitHeadsOp);
FOR_DTYPE("BertMergeHeads", MergeHeadsOp);
REGISTER_KERNEL_BUILDER(Name("BertDropoutMask").Device(tensorflow::DEVICE_CPU), DropoutMaskOp);
REGISTER_KERNEL_BUILDER(Name("BertAdamW").Device(tensorflow::DEVICE_CPU), AdamWOp);

}  // namespace
}  // namespace bert
