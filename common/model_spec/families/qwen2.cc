// Qwen2 and 2.5 (Yang et al. 2024, arXiv 2407.10671; transformers' modeling_qwen2): q, k and v have
// biases.
#include "common/model_spec/model_family.h"

namespace tandem {
namespace {
constexpr std::string_view kQwen2FalseKeys[] = {"use_sliding_window"};
}  // namespace

extern const ModelFamily kQwen2Family = {
    .architecture = "Qwen2ForCausalLM", .qkv_bias = true, .exported_false = kQwen2FalseKeys};

}  // namespace tandem
