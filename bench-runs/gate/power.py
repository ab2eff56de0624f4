"""How often the rule of the gate finds 5 %, and says so of equals, for a deviation of the ratios of blocks: power.py"""
import random, math, statistics as st
T={6:4.032,12:3.106,24:2.807,48:2.685}
def gate(effect, sd, looks, rng):
    x=[]
    for look in looks:
        while len(x)<look: x.append(math.log(effect)+rng.gauss(0,sd))
        m=st.mean(x); h=T[look]*st.stdev(x)/look**.5
        lo,mid,hi=math.exp(m-h),math.exp(m),math.exp(m+h)
        if mid>1.03 and lo>1: return "slower",look
        if hi<1.03: return "passed",look
    return "unclear",look
rng=random.Random(1)
for sd in (0.03,0.045,0.06,0.08):
  for looks in ((6,12),(6,12,24),(6,12,24,48)):
    out=[]
    for e in (1.05,1.0):
      r=[gate(e,sd,looks,rng) for _ in range(4000)]
      n=len(r); out.append("%.2f: slower %.3f passed %.3f unclear %.3f blocks %.0f"%(e,*(sum(a==k for a,_ in r)/n for k in("slower","passed","unclear")),st.mean(b for _,b in r)))
    print(sd,looks,out)
