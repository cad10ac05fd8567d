"""CUDA source of the tempering kernels; compiled by CuPy when first used.

One block holds one (instance, ensemble), one warp one replica. A site takes the value +1 iff its
field exceeds logit(u) / (2β), so with thresholds drawn first a warp finds its next flip by one ballot,
and only flips cost work that grows with the number of neighbours.
"""

_COMMON = r"""
#define FULL 0xffffffffu

struct Stream { unsigned long long state; unsigned long long step; };

__device__ __forceinline__ Stream open_stream(unsigned long long seed, unsigned long long id) {
  // splitmix64 of (seed, id) seeds a PCG-32 with its own odd increment: streams do not overlap
  unsigned long long z = seed + 0x9E3779B97F4A7C15ULL * (id + 1ULL);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  Stream r; r.state = z ^ (z >> 31); r.step = (id << 1) | 1ULL;
  return r;
}
__device__ __forceinline__ float uniform(Stream& r) {
  unsigned long long old = r.state;
  r.state = old * 6364136223846793005ULL + r.step;
  unsigned x = (unsigned)(((old >> 18u) ^ old) >> 27u);
  unsigned rot = (unsigned)(old >> 59u);
  x = (x >> rot) | (x << ((32u - rot) & 31u));
  return ((float)(x >> 8) + 0.5f) * (1.0f / 16777216.0f);   // in (0, 1), never its ends
}
__device__ __forceinline__ float warp_sum(float x) {
  for (int o = 16; o; o >>= 1) x += __shfl_xor_sync(FULL, x, o);
  return x;
}

struct Ladder { float* energy; int* level; int* replica; int* trip; };

// Exchange neighbouring levels of alternating parity; counts accepted swaps and hot-to-cold trips.
__device__ __forceinline__ void exchange(
    Ladder L, const float* betas, int R, int sweep, int rep, int lane, Stream& rng,
    float* accepted, float* trips, bool counting) {
  __syncthreads();
  if (rep == 0) {
    for (int k = 2 * lane + (sweep & 1); k + 1 < R; k += 64) {
      int a = L.replica[k], b = L.replica[k + 1];
      float gain = (betas[k] - betas[k + 1]) * (L.energy[a] - L.energy[b]);
      if (gain >= 0.f || uniform(rng) < __expf(gain)) {
        L.replica[k] = b; L.replica[k + 1] = a; L.level[a] = k + 1; L.level[b] = k;
        if (counting) accepted[k] += 1.f;
      }
    }
    __syncwarp();
    for (int a = lane; a < R; a += 32) {
      if (L.level[a] == 0) L.trip[a] = 1;
      else if (L.level[a] == R - 1 && L.trip[a]) { L.trip[a] = 0; if (counting) atomicAdd(trips, 1.f); }
    }
  }
  __syncthreads();
}
"""

DENSE_ISING = (
    _COMMON
    + r"""
// Couplings as a full matrix; spins and local fields live in registers, PER spins per lane.
extern "C" __global__ void __launch_bounds__(1024) temper(
    const float* __restrict__ J, const float* __restrict__ h, const float* __restrict__ ladder,
    const int N, const int R, const int C, const int burn, const int segment, const int segments,
    const unsigned long long seed, float* __restrict__ sums, float* __restrict__ squares,
    double* __restrict__ moments, float* __restrict__ accepted, float* __restrict__ trips)
{
  extern __shared__ char raw[];
  Ladder L; L.energy = (float*)raw; L.level = (int*)(L.energy + R); L.replica = L.level + R;
  L.trip = L.replica + R; float* betas = (float*)(L.trip + R);
  const int lane = threadIdx.x, rep = threadIdx.y; const size_t chain = blockIdx.x;
  const size_t b = chain / C;
  const float* Jb = J + b * N * N; const float* hb = h + b * N;
  Stream rng = open_stream(seed, (chain * R + rep) * 32 + lane);
  if (lane == 0) { L.level[rep] = rep; L.replica[rep] = rep; L.trip[rep] = 0; betas[rep] = ladder[rep]; }
  float f[PER];
  unsigned up = 0u;                          // bit k: is spin k * 32 + lane up (PER is at most 32)
  for (int k = 0; k < PER; k++) up |= (uniform(rng) < 0.5f ? 1u : 0u) << k;
  __syncthreads();
  const int total = burn + segment * segments;
  for (int sweep = 0; sweep < total; sweep++) {
    const bool counting = sweep >= burn;
    const int part = counting ? (sweep - burn) / segment : 0;
    if (sweep == 0 || (counting && (sweep - burn) % segment == 0)) {
      // rebuild the fields from the spins now and then, so that rounding does not pile up
      #pragma unroll
      for (int k = 0; k < PER; k++) { int i = k * 32 + lane; f[k] = i < N ? hb[i] : 0.f; }
      #pragma unroll
      for (int k = 0; k < PER; k++)
        for (int l = 0; l < 32; l++) {
          int i = k * 32 + l; if (i >= N) break;
          float si = (__shfl_sync(FULL, up, l) >> k) & 1u ? 1.f : -1.f;
          #pragma unroll
          for (int q = 0; q < PER; q++) { int j = q * 32 + lane; if (j < N) f[q] += Jb[(size_t)i * N + j] * si; }
        }
    }
    const int level = L.level[rep]; const float beta = betas[level]; const float half = 0.5f / beta;
    #pragma unroll
    for (int k = 0; k < PER; k++) {
      if (k * 32 >= N) break;
      float u = uniform(rng);
      float threshold = (__logf(u) - __logf(1.0f - u)) * half;
      bool valid = k * 32 + lane < N;
      unsigned left = FULL;
      while (true) {
        bool wants = valid && ((f[k] > threshold) != (bool)((up >> k) & 1u));
        unsigned votes = __ballot_sync(FULL, wants) & left;
        if (!votes) break;
        int l = __ffs(votes) - 1;
        float step = (__shfl_sync(FULL, up, l) >> k) & 1u ? -2.f : 2.f;
        if (lane == l) up ^= 1u << k;
        const float* row = Jb + (size_t)(k * 32 + l) * N;
        #pragma unroll
        for (int q = 0; q < PER; q++) { int j = q * 32 + lane; if (j < N) f[q] += row[j] * step; }
        left = l == 31 ? 0u : (FULL << (l + 1));
        if (!left) break;
      }
    }
    float e = 0.f;
    #pragma unroll
    for (int k = 0; k < PER; k++) { int i = k * 32 + lane; if (i < N) e -= ((up >> k) & 1u ? 0.5f : -0.5f) * (f[k] + hb[i]); }
    e = warp_sum(e);
    if (lane == 0) {
      L.energy[rep] = e;
      if (counting) {
        double* m = moments + (chain * R + level) * 2;
        m[0] += (double)e; m[1] += (double)e * e;
      }
    }
    if (counting && level == R - 1) {
      float* out = sums + (chain * segments + part) * N;
      float* two = squares + (chain * 2 + (2 * part >= segments)) * N;
      #pragma unroll
      for (int k = 0; k < PER; k++) {
        int i = k * 32 + lane;
        if (i < N) { float p = 1.f / (1.f + __expf(-2.f * beta * f[k])); out[i] += p; two[i] += p * p; }
      }
    }
    exchange(L, betas, R, sweep, rep, lane, rng, accepted + chain * (R - 1), trips + chain, counting);
  }
}
"""
)

SPARSE_PAIRWISE = (
    _COMMON
    + r"""
// Any pairwise model of up to Q states on a sparse graph. Sites of one colour share no edge, so a warp
// updates them together. Directed edges of site i: begin[i] .. begin[i+1], with table tables[e][x_i][x_j].
extern "C" __global__ void __launch_bounds__(1024) temper(
    const int* __restrict__ begin, const int* __restrict__ neighbour, const float* __restrict__ tables,
    const float* __restrict__ h, const int* __restrict__ colour_start, const int* __restrict__ sites,
    const unsigned char* __restrict__ cards, const float* __restrict__ ladder,
    const int N, const int M, const int K, const int R, const int C,
    const int burn, const int segment, const int segments, const unsigned long long seed,
    float* __restrict__ sums, float* __restrict__ squares,
    double* __restrict__ moments, float* __restrict__ accepted, float* __restrict__ trips)
{
  extern __shared__ char raw[];
  Ladder L; L.energy = (float*)raw; L.level = (int*)(L.energy + R); L.replica = L.level + R;
  L.trip = L.replica + R; float* betas = (float*)(L.trip + R);
  unsigned char* x = (unsigned char*)(betas + R) + (size_t)threadIdx.y * N;
  const int lane = threadIdx.x, rep = threadIdx.y; const size_t chain = blockIdx.x;
  const size_t b = chain / C;
  const int* bb = begin + b * (N + 1); const int* nb = neighbour + b * M;
  const float* tb = tables + b * (size_t)M * Q * Q; const float* hb = h + b * (size_t)N * Q;
  const int* cs = colour_start + b * (K + 1); const int* sb = sites + b * N;
  Stream rng = open_stream(seed, (chain * R + rep) * 32 + lane);
  if (lane == 0) { L.level[rep] = rep; L.replica[rep] = rep; L.trip[rep] = 0; betas[rep] = ladder[rep]; }
  for (int i = lane; i < N; i += 32) {
    int card = cards[b * N + i];
    x[i] = (unsigned char)min((int)(uniform(rng) * card), card - 1);
  }
  __syncthreads();
  double energy = 0.0;
  const int total = burn + segment * segments;
  for (int sweep = 0; sweep < total; sweep++) {
    const bool counting = sweep >= burn;
    const int part = counting ? (sweep - burn) / segment : 0;
    const int level = L.level[rep]; const float beta = betas[level];
    const bool target = counting && level == R - 1;
    if (sweep == 0 || (counting && (sweep - burn) % segment == 0)) {
      float e = 0.f;                         // each edge is stored twice, hence the half
      for (int i = lane; i < N; i += 32) {
        e -= hb[(size_t)i * Q + x[i]];
        for (int a = bb[i]; a < bb[i + 1]; a++)
          e -= 0.5f * tb[((size_t)a * Q + x[i]) * Q + x[nb[a]]];
      }
      energy = (double)warp_sum(e);
    }
    float change = 0.f;
    for (int c = 0; c < K; c++) {
      for (int at = cs[c] + lane; at < cs[c + 1]; at += 32) {
        const int i = sb[at];
        float w[Q];
        #pragma unroll
        for (int y = 0; y < Q; y++) w[y] = hb[(size_t)i * Q + y];
        for (int a = bb[i]; a < bb[i + 1]; a++) {
          const float* t = tb + (size_t)a * Q * Q + x[nb[a]];
          #pragma unroll
          for (int y = 0; y < Q; y++) w[y] += t[y * Q];
        }
        const int old = x[i];
        float top = w[0];
        #pragma unroll
        for (int y = 1; y < Q; y++) top = fmaxf(top, w[y]);
        float p[Q], z = 0.f, before = 0.f, after = 0.f;
        #pragma unroll
        for (int y = 0; y < Q; y++) { p[y] = __expf(beta * (w[y] - top)); z += p[y]; }
        float u = uniform(rng) * z; int chosen = -1; float acc = 0.f;
        #pragma unroll
        for (int y = 0; y < Q; y++) {
          acc += p[y];
          if (chosen < 0 && u < acc) chosen = y;
        }
        if (chosen < 0) chosen = old;        // rounding put u past the last sum: keep the state
        #pragma unroll
        for (int y = 0; y < Q; y++) { if (y == old) before = w[y]; if (y == chosen) after = w[y]; }
        change -= after - before;
        x[i] = (unsigned char)chosen;
        if (target) {
          float* out = sums + ((chain * segments + part) * N + i) * Q;
          float* two = squares + ((chain * 2 + (2 * part >= segments)) * N + i) * Q;
          #pragma unroll
          for (int y = 0; y < Q; y++) { float v = p[y] / z; out[y] += v; two[y] += v * v; }
        }
      }
      __syncwarp();
    }
    energy += (double)warp_sum(change);
    if (lane == 0) {
      L.energy[rep] = (float)energy;
      if (counting) {
        double* m = moments + (chain * R + level) * 2;
        m[0] += energy; m[1] += energy * energy;
      }
    }
    exchange(L, betas, R, sweep, rep, lane, rng, accepted + chain * (R - 1), trips + chain, counting);
  }
}
"""
)
