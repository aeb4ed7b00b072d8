// Runs a Supervisor for the workers of one host, which a controller of another host orders.
#pragma once

#include "common/net/membership/agent_client.h"
#include "deploy/launcher/process_table.h"
#include "deploy/launcher/supervisor.h"

namespace tandem {

// Supervises what `first`, the answer to the first beat, and those that follow say, until the run
// is over, the controller is lost or a signal stops the agent; then ends the workers and leaves.
// `news` is what all beats have in common. Returns the agent's exit code. Messages go to stderr.
// BlockSignals comes first.
int RunAgent(const AgentNews& news,
             const AgentOrders& first,
             const SupervisorOptions& options,
             ProcessTable* table,
             AgentClient* client);

// The processes of an answer, each with its device set in `table`.
std::vector<ProcessId> TakeOrders(const AgentOrders& orders, ProcessTable* table);

}  // namespace tandem
