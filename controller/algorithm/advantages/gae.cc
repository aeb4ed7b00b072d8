// gae: generalized advantage estimation (Schulman et al. 2016, arXiv 1506.02438), verl's default.
// No run can use it, as it needs the values of a critic. It is registered so that a verl
// configuration is refused with this reason.
#include "controller/algorithm/advantage_estimator.h"

namespace tandem {

extern const AdvantageEstimator kGaeEstimator = {
    .discounts = true,
    .bootstraps = true,
    .unavailable = "needs the values of a critic, and there is no critic yet"};

}  // namespace tandem
