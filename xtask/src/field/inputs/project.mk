# Four sources, each compiled twice, and two programs.
CFLAGS = -w
OBJECTS = stencil parse throws alloc

all: stencil-fast parse-fast throws-fast alloc-fast
	@cat $(OBJECTS:%=%.2.o) | cksum

%.2.o: %.c
	gcc $(CFLAGS) -O2 -c $< -o $@
%.2.o: %.cpp
	g++ $(CFLAGS) -O2 -c $< -o $@
%.0.o: %.c
	gcc $(CFLAGS) -O0 -g -c $< -o $@
%.0.o: %.cpp
	g++ $(CFLAGS) -O0 -g -c $< -o $@
%-fast: %.2.o %.0.o
	g++ -pthread $< -o $@
