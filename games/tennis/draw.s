; The sprites: 64 of them, built anew in every frame. What comes first is in front where more than eight meet in a line,
; so the ball comes first, and the players of a doubles take turns.

TRAIL_LENGTH = 30           ; points of the trail, two frames apart

.segment "CODE"

; No sprite is seen.
.proc hide_sprites
    lda #0
    sta oam_i
.endproc                    ; goes on

; None of the sprites from oam_i on is seen.
.proc hide_rest
    ldx oam_i
    lda #$F8
:   sta OAM, x
    inx
    inx
    inx
    inx
    bne :-
    rts
.endproc

; A sprite: x in t0, y in t1, tile in t2, colours and so on in t3. Keeps Y.
.proc put_sprite
    ldx oam_i
    lda t1
    sta OAM, x
    lda t2
    sta OAM+1, x
    lda t3
    sta OAM+2, x
    lda t0
    sta OAM+3, x
    inx
    inx
    inx
    inx
    stx oam_i
    rts
.endproc

.proc draw_title
    lda #0
    sta oam_i
    lda #BEHIND
    sta layer
    jsr draw_ball
    jsr draw_dust
    jsr draw_trail
    jmp hide_rest           ; there are always some left
.endproc

.proc draw_match
    lda #0
    sta oam_i
    sta layer
    jsr draw_ball
    jsr draw_sparks
    jsr draw_players
    jsr draw_dust
    jsr draw_trail
    ldx oam_i
    bne hide_rest           ; 0: all 64 are used
    rts
.endproc

; The line of the ball's sprite, in A.
.proc ball_line
    lda #GROUND_Y - 7
    sec
    sbc ball_h+1
    bcs :+
    lda #$F8                ; above the screen
:   rts
.endproc

; The ball and its shadow.
.proc draw_ball
    lda ball_gone
    bne @done
    jsr ball_line
    sta t1
    lda ball_x+1
    sec
    sbc #4
    sta t0
    lda #TILE_BALL
    sta t2
    lda #PALETTE_BALL
    ora layer
    sta t3
    jsr put_sprite
    lda #GROUND_Y - 3
    sta t1
    lda #TILE_SHADOW
    sta t2
    jmp put_sprite
@done:
    rts
.endproc

; Where the ball was: the afterglow of the screen.
.proc draw_trail
    ldy #0
@point:
    lda trail_i
    sec
    sbc trail_age, y
    and #63
    tax
    lda trail_x, x
    beq @none
    sec
    sbc #4
    sta t0
    lda #GROUND_Y - 7
    sec
    sbc trail_h, x
    bcc @none
    sta t1
    lda trail_tile, y
    sta t2
    lda #PALETTE_BALL
    ora layer
    sta t3
    jsr put_sprite
    lda oam_i
    beq @done               ; there are no more sprites
@none:
    iny
    cpy #TRAIL_LENGTH
    bne @point
@done:
    rts
.endproc

; Six sparks fly apart.
.proc draw_sparks
    lda spark_t
    beq @done
    lda #TILE_SPARK
    ldy spark_t
    cpy #9
    bcs :+
    lda #TILE_SPARK + 1
:   sta t2
    lda #PALETTE_SPARK
    sta t3
    ldy #5
@spark:
    lda spark_dx, y
    jsr @far
    clc
    adc spark_x
    sec
    sbc #4
    sta t0
    lda spark_dy, y
    jsr @far
    clc
    adc spark_y
    sta t1
    jsr put_sprite
    dey
    bpl @spark
@done:
    rts
@far:                       ; A, less what is still to come: a quarter of it at first
    ldx spark_t
    cpx #12
    bcc :+
    cmp #$80
    ror
:   cpx #6
    bcc :+
    cmp #$80
    ror
:   rts
.endproc

; Two specks at the place where the ball touched the ground.
.proc draw_dust
    lda dust_t
    beq @done
    lda #10
    sec
    sbc dust_t
    sta num                 ; how far they are
    lda #TILE_TRAIL + 2
    sta t2
    lda #PALETTE_BALL
    ora layer
    sta t3
    lda num
    lsr
    sta t0
    lda #GROUND_Y - 6
    sec
    sbc t0
    sta t1
    lda dust_x
    sec
    sbc #6
    sec
    sbc num
    sta t0
    jsr put_sprite
    lda dust_x
    sec
    sbc #2
    clc
    adc num
    sta t0
    jmp put_sprite
@done:
    rts
.endproc

.proc draw_players
    ldy #4
@next:
    dey
    sty num
    tya
    clc
    adc frame
    and #3
    cmp players
    bcs @none
    tax
    jsr draw_player
@none:
    ldy num
    bne @next
    rts
.endproc

; Player X: six tiles, the racket, and a number in a doubles.
.proc draw_player
    stx who
    jsr choose_pose
    sta pose
    asl
    sta t2
    asl
    adc t2
    sta t2                  ; six tiles for each pose
    txa
    and #1
    sta t3                  ; the palette is the side's
    beq :+
    lda #PALETTE_RIGHT | FLIP
    sta t3
:   lda #GROUND_Y - 25
    sec
    sbc player_h, x
    sta t1
    sta top
    lda player_x, x
    sec
    sbc #8
    sta left
    ldy #3                  ; rows
@row:
    lda left
    ldx t3
    beq :+
    clc
    adc #8                  ; who looks to the left is mirrored
:   sta t0
    jsr put_sprite
    lda left
    ldx t3
    bne :+
    clc
    adc #8
:   sta t0
    inc t2
    jsr put_sprite
    inc t2
    lda t1
    clc
    adc #8
    sta t1
    dey
    bne @row
    jsr draw_racket
    lda players
    cmp #4
    bne @done
    lda left
    clc
    adc #5
    sta t0
    lda top
    sec
    sbc #10
    sta t1
    lda who
    clc
    adc #TILE_NUMBER
    sta t2
    lda who
    and #1
    sta t3
    jmp put_sprite
@done:
    rts
.endproc

; The racket, where the pose has it.
.proc draw_racket
    ldy pose
    lda racket_tile, y
    sta t2
    lda top
    clc
    adc racket_y, y
    sta t1
    lda racket_flip, y
    eor t3
    sta t3
    and #1
    bne @mirrored
    lda left
    clc
    adc racket_x, y
    sta t0
    jmp put_sprite
@mirrored:
    lda left
    clc
    adc #8
    sec
    sbc racket_x, y
    sta t0
    jmp put_sprite
.endproc

; The pose of player X, in A. Keeps X.
.proc choose_pose
    lda swing, x
    bne @swings
    lda state
    cmp #STATE_POINT
    bcs @over
    cpx server
    bne :+
    cmp #STATE_TOSS
    beq @toss
:   lda pv, x
    bne @runs
    lda pv_frac, x
    cmp #$40
    bcs @runs
    lda #POSE_READY
    rts
@runs:
    lda player_x, x
    lsr
    lsr
    lsr
    and #1
    clc
    adc #POSE_RUN1
    rts
@toss:
    lda #POSE_BACK
    rts
@swings:
    cmp #SWING_SMASH
    beq @high
    cmp #SWING_SERVE
    bcs @high
    ldy swing_t, x
    lda swing_pose, y
    rts
@high:
    lda #POSE_SMASH
    ldy swing_t, x
    cpy #8
    bcc :+
    lda #POSE_HIT
:   rts
@over:
    lda winner
    cmp #$FF
    beq @ready              ; a fault
    txa
    and #1
    cmp winner
    bne @sad
    lda frame               ; up and down with joy
    and #16
    beq @ready
    lda #POSE_CHEER
    rts
@ready:
    lda #POSE_READY
    rts
@sad:
    lda #POSE_SAD
    rts
.endproc

.segment "BSS"
layer:      .res 1          ; BEHIND on the title
pose:       .res 1
left:       .res 1
top:        .res 1

.segment "RODATA"

trail_age:
    .repeat TRAIL_LENGTH, i
    .byte 2 + 2 * i
    .endrepeat
trail_tile:
    .repeat TRAIL_LENGTH, i
    .if i < 4
    .byte TILE_TRAIL
    .elseif i < 11
    .byte TILE_TRAIL + 1
    .elseif i < 20
    .byte TILE_TRAIL + 2
    .else
    .byte TILE_TRAIL + 3
    .endif
    .endrepeat

spark_dx:
    .byte <-26, <-14, 14, 26, 14, <-14
spark_dy:
    .byte 0, <-22, <-22, 0, 22, 22

; By the pose: ready, run, run, back, hit, follow, smash, cheer, sad.
racket_x:
    .byte 11, 10, 9, <-6, 14, 9, 0, 10, 8
racket_y:
    .byte 4, 3, 5, 5, 7, <-6, <-7, <-7, 16
racket_tile:
    .byte TILE_RACKET_SLANT, TILE_RACKET_SLANT, TILE_RACKET_SLANT, TILE_RACKET_SLANT, TILE_RACKET_LEVEL
    .byte TILE_RACKET_UP, TILE_RACKET_UP, TILE_RACKET_UP, TILE_RACKET_SLANT
racket_flip:
    .byte 0, 0, 0, FLIP, 0, 0, 0, 0, %10000000

; The pose in each frame of a swing.
swing_pose:
    .res 3, POSE_BACK
    .res 5, POSE_HIT
    .res 11, POSE_FOLLOW
