// Slots of CudaContext::Scratch that the row ops and the head use; CudaAttention's are its own.
// Forward and backward share them: a call's scratch ends with the call.
#pragma once

namespace tandem {

inline constexpr int kLogitsSlot = 0;         // fp32 logits
inline constexpr int kLogitSumsSlot = 1;      // LogitSums of rows and chunks
inline constexpr int kRowResultsSlot = 2;     // what goes back to the host, a value per row
inline constexpr int kDlogitsSlot = 3;        // bf16 gradients of logits
inline constexpr int kNormSlot = 4;           // NormScratch
inline constexpr int kHeadSumsSlot = 7;       // fp32 gradients of hidden rows
inline constexpr int kProductSlot = 8;        // PaddedRows of a product
inline constexpr int kRankRowsSlot = 9;       // A x of adapters
inline constexpr int kRankGradientSlot = 10;  // its gradient

}  // namespace tandem
