#include "mesh/shard.h"

namespace tutti {

Graph add_products_first(const Graph& graph) { return graph; }

} // namespace tutti
